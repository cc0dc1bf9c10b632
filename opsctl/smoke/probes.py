"""The requests of a smoke test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from opsctl.inventory.models import Smoke
from opsctl.sglang import ChatAnswer, GenerateAnswer, ServerError
from opsctl.smoke.model import Probes

_Answer = TypeVar("_Answer")


class Client(Protocol):
    """What the probes ask of `opsctl.sglang.SglangClient`."""

    def server_info(self) -> dict[str, object]: ...

    def chat(
        self, prompt: str, max_tokens: int, timeout: float, model: str = ...
    ) -> ChatAnswer: ...

    def generate(self, prompt: str, max_new_tokens: int, timeout: float) -> GenerateAnswer: ...


def run_probes(client: Client, settings: Smoke, model: str) -> Probes:
    """Ask for a chat completion and a native generation, one after the other; never raises.

    /health is not asked: its one token comes from a prefill, so it never runs a verify step.
    `Smoke.max_tokens` is at least 16, which no draft block of today yields in one step.
    """
    chat = _answer_or_error(
        lambda: client.chat(settings.prompt, settings.max_tokens, settings.timeout, model=model)
    )
    generate = _answer_or_error(
        lambda: client.generate(settings.prompt, settings.max_tokens, settings.timeout)
    )
    info = _answer_or_error(client.server_info)
    if isinstance(info, ServerError):
        return Probes(chat, generate, settings.prompt, settings.max_tokens)
    drafts, version = info.get("speculative_num_draft_tokens"), info.get("version")
    known = "speculative_algorithm" in info
    return Probes(
        chat=chat,
        generate=generate,
        prompt=settings.prompt,
        max_tokens=settings.max_tokens,
        algorithm=str(info["speculative_algorithm"] or "") if known else None,
        version=version if isinstance(version, str) else None,
        draft_tokens=drafts if isinstance(drafts, int) else None,
    )


def _answer_or_error(ask: Callable[[], _Answer]) -> _Answer | ServerError:
    try:
        return ask()
    except ServerError as error:
        return error
