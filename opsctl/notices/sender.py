"""One POST to a webhook. Whatever goes wrong is told without its URL, which is a secret."""

from __future__ import annotations

import contextlib
import email.utils
import logging
import ssl
import threading
import time

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay
from tenacity import wait_exponential as growing

from opsctl import __version__
from opsctl.inventory.notices import is_loopback

# Seconds: until the last try begins, to connect, for one silence.
BOUND = 10.0
_CONNECT, _SILENCE = 3.0, 5.0
# Between tries, where the receiver does not say: 0.5, 1, 2, 4 s.
_BACKOFF = growing(multiplier=0.5, max=4.0)

_TOO_MANY, _OWN_FAULT = 429, 500
# X509_V_ERR_HOSTNAME_MISMATCH, …_EMAIL_MISMATCH and …_IP_ADDRESS_MISMATCH of OpenSSL's x509_vfy.h.
_MISMATCHES = frozenset({62, 63, 64})

THREADS = "opsctl-notice"


class _NoUrlInLogs(logging.Filter):
    """httpx logs each request with its URL, httpcore the host that it connects to."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not threading.current_thread().name.startswith(THREADS)


for _name in ("httpx", *(f"httpcore.{part}" for part in ("connection", "proxy", "http11"))):
    logging.getLogger(_name).addFilter(_NoUrlInLogs())


class NotDelivered(Exception):
    """Why. `again` says that another try may mend it, after `after` seconds where the receiver
    named some."""

    def __init__(self, reason: str, *, again: bool = False, after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        self.after = after


def post(url: str, body: bytes, *, within: float = BOUND) -> None:
    """Deliver `body`, with more tries that begin within `within` seconds where those may help.

    To be called on a thread whose name begins with `THREADS`.

    Raises:
        NotDelivered: it was not accepted; a redirect is not followed and counts as that.
    """
    try:
        target = httpx.URL(url)
        # A proxy of this machine's has no way to the machine itself.
        mounts = {f"all://{target.host}": None} if is_loopback(target.host) else {}
        with httpx.Client(timeout=httpx.Timeout(_SILENCE, connect=_CONNECT), mounts=mounts) as http:
            for attempt in Retrying(
                retry=retry_if_exception(lambda error: getattr(error, "again", False)),
                stop=stop_before_delay(within),
                wait=_pause,
                reraise=True,
            ):
                with attempt:
                    _post(http, target, body)
    except (httpx.InvalidURL, ValueError):
        raise NotDelivered("the URL, or a proxy's, cannot be used") from None


def _post(http: httpx.Client, url: httpx.URL, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": f"opsctl/{__version__}"}
    try:
        # The status is enough: whoever sends no end of an answer is not waited for.
        with http.stream("POST", url, content=body, headers=headers) as response:
            status, after = response.status_code, response.headers.get("Retry-After")
            redirected, accepted = response.has_redirect_location, response.is_success
    except httpx.HTTPError as error:
        raise _unanswered(error) from None
    if accepted:
        return
    if redirected:
        raise NotDelivered(f"HTTP {status}: a redirect, which is not followed")
    again = status == _TOO_MANY or status >= _OWN_FAULT
    raise NotDelivered(f"HTTP {status}", again=again, after=_seconds(after) if again else None)


def _unanswered(error: httpx.HTTPError) -> NotDelivered:
    """By its kind: the texts of the errors name hosts."""
    tls = _tls_fault(error)
    if tls:
        return NotDelivered(tls)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return NotDelivered("no connection", again=True)
    if isinstance(error, httpx.TimeoutException):  # it may have arrived
        return NotDelivered(f"no answer in {_SILENCE:.0f} s")
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.WriteError):
        return NotDelivered("the connection was closed without an answer")
    return NotDelivered(type(error).__name__)


def _tls_fault(error: BaseException | None) -> str:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if error is None:
        return ""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return "no TLS connection"
    mismatch = error.verify_code in _MISMATCHES  # whose text has the host's name
    why = "it is for another name" if mismatch else error.verify_message
    return f"its certificate is not trusted: {why}"


def _pause(state: RetryCallState) -> float:
    """What the receiver asks for; `stop_before_delay` ends it where that is too long."""
    fault = state.outcome.exception() if state.outcome is not None else None
    after = fault.after if isinstance(fault, NotDelivered) else None
    return _BACKOFF(state) if after is None else after


def _seconds(retry_after: str | None) -> float | None:
    """Of a Retry-After header, which has seconds or a date (RFC 9110, 10.2.3)."""
    if retry_after is None:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    with contextlib.suppress(ValueError, OverflowError):
        at = email.utils.parsedate_to_datetime(retry_after)
        return max(0.0, at.timestamp() - time.time())
    return None
