"""The server that runs, as baselines and exams know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsctl.baseline import Identity, Prompt, identity, prompts
from opsctl.errors import Refused
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
    found = prompts.bundled() if path is None else prompts.read(path)
    return prompts.for_server(found, facts.chunk, facts.context)
