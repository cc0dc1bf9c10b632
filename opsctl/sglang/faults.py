"""What can go wrong between opsctl and an SGLang server, in one exception."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

import httpx

Cause = Literal["refused", "timeout", "reset", "status", "malformed", "failed"]

_BODY_LIMIT: Final = 300


class ServerError(Exception):
    """The server gave no usable answer. `cause` is stable; `status` is None without one."""

    def __init__(
        self, message: str, *, cause: Cause, status: int | None = None, body: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cause: Cause = cause
        self.status = status
        self.body = body


def authorization(api_key: str | None) -> dict[str, str]:
    """The header that an API key goes into."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


@dataclass(frozen=True, slots=True)
class Faults:
    """Makes the `ServerError` of each failure. The API key is in none of them."""

    api_key: str | None = field(default=None, repr=False)

    @contextlib.contextmanager
    def told(self, what: str, seconds: float) -> Iterator[None]:
        """httpx's errors as a `ServerError` about the request `what`, bounded by `seconds`."""
        try:
            yield
        except httpx.ConnectError as error:
            raise self._error(f"{what}: cannot connect ({error})", "refused") from None
        except (httpx.TimeoutException, TimeoutError):
            raise self._error(f"{what}: no answer within {seconds:g} s", "timeout") from None
        except (httpx.NetworkError, httpx.RemoteProtocolError) as error:
            reason = str(error) or "the connection was reset"
            raise self._error(f"{what}: ended before its answer did ({reason})", "reset") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._error(f"{what}: {error}", "failed") from None

    def status(self, what: str, status: int, body: str) -> ServerError:
        """Of an answer that is no success."""
        text = self._short(body)
        return self._error(f"{what}: HTTP {status}: {text}", "status", status=status, body=text)

    def malformed(self, path: str, answer: object, error: Exception) -> ServerError:
        """Of a success that does not read as what it should be."""
        return self._error(
            f"{path}: unexpected answer ({type(error).__name__})",
            "malformed",
            status=200,
            body=self._short(str(answer)),
        )

    def _error(
        self, message: str, cause: Cause, *, status: int | None = None, body: str = ""
    ) -> ServerError:
        return ServerError(self._hide(message), cause=cause, status=status, body=self._hide(body))

    def _short(self, text: str) -> str:
        text = " ".join(self._hide(text).split())
        return text if len(text) <= _BODY_LIMIT else text[:_BODY_LIMIT] + "..."

    def _hide(self, text: str) -> str:
        return text.replace(self.api_key, "[api key]") if self.api_key else text
