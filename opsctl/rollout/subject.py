"""The server that runs, as baselines and exams know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsctl.baseline import Identity, Prompt, identity, prompts
from opsctl.errors import Refused, UsageError
from opsctl.rollout.session import Session
from opsctl.sglang import ServerError
from opsctl.smoke import ServerFacts


def subject(session: Session) -> tuple[Identity, ServerFacts]:
    """Which server runs, as a baseline knows it, and what decides the requests.

    Raises:
        Refused: it does not answer.
    """
    try:
        with session.client() as client:
            info = client.server_info()
    except ServerError as error:
        raise Refused(
            f"the server does not say what it is: {error.message}",
            remedy=f"opsctl status {session.host.name}",
            code="server_info_failed",
        ) from None
    path = str(info.get("model_path") or session.service.model.path)
    model: dict[str, Any] = session.remote.call("model_facts", path=path)
    return identity(info, session.service.model.served_name, model), ServerFacts.of(info)


def chosen_prompts(path: Path | None, facts: ServerFacts) -> tuple[Prompt, ...]:
    """The bundled set or one's own, as the server can take them."""
    return prompts.for_server(_chosen(path).prompts, facts.chunk, facts.context)


def deep_prompts(path: Path | None, facts: ServerFacts) -> tuple[Prompt, ...]:
    """Those that the deep level asks beside them; a set of one's own may have none."""
    return prompts.for_server(_chosen(path).deep, facts.chunk, facts.context)


def require_prompts(path: Path | None, *, deep: bool) -> None:
    """Raises UsageError: they cannot be read, or are to have some for the deep level and do not."""
    if not _chosen(path).deep and deep:
        raise UsageError(
            f"{path} has no prompts for the deep level",
            remedy="list some under `deep:`, as opsctl/baseline/prompts.yaml does, or leave out "
            "--deep",
        )


def _chosen(path: Path | None) -> prompts.PromptSet:
    return prompts.bundled() if path is None else prompts.read(path)
