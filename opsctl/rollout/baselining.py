"""Baselines of a service: captured, kept on the host, chosen, exported."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from opsctl.baseline import Answer, Baseline, Identity, Prompt, capture, load
from opsctl.errors import Refused, UsageError
from opsctl.events import Event
from opsctl.report import Report
from opsctl.rollout.reports import plain_report
from opsctl.rollout.serving import require_ready
from opsctl.rollout.session import Session
from opsctl.rollout.subject import chosen_prompts, deep_prompts, require_prompts, subject
from opsctl.sglang import ServerError
from opsctl.text import counted


def take(session: Session, prompts: Path | None, *, trust: bool, deep: bool = False) -> Report:
    """Ask the server that runs for what later answers are compared with, and keep it; `deep` for
    the deep level's own prompts as well.

    Raises:
        Refused: it is not ready; it speculates, and `trust` was not given; it gives no answer, or
            two different ones.
        UsageError: `prompts` cannot be read, or has none for the deep level.
    """
    require_prompts(prompts, deep=deep)
    require_ready(session, session.unit())
    found, facts = subject(session)
    host = session.host.name
    if facts.algorithm and not trust:
        raise Refused(
            f"{session.service.unit} speculates ({facts.algorithm}), and speculation is what a "
            "baseline is to judge",
            remedy=f"let it be started without, twice a load: opsctl baseline capture {host} "
            "--restart; or take this generation at its word: --trust",
            code="speculative",
        )
    if not found.files:
        raise Refused(
            f"{found.model_path} is no folder of {host}: nothing says which model this is",
            remedy="serve the model from a folder on the host",
            code="model_unknown",
        )
    asked = chosen_prompts(prompts, facts)
    if deep:
        asked += deep_prompts(prompts, facts)
    answers = _asked(session, asked, logprobs=not facts.algorithm)
    generation = session.inspect()["generation"]
    made = Baseline(
        created=time.time(),
        host=host,
        service=session.service.name,
        generation=generation["number"] if generation else None,
        reference="trusted" if facts.algorithm else "plain",
        identity=found,
        answers=tuple(answers),
    )
    kept: dict[str, Any] = session.call("write_baseline", name=made.id, text=made.model_dump_json())
    text = f"{made.label} is kept in {kept['path']}"
    return plain_report(session, "baseline capture", text, data=_row(made))


def _asked(session: Session, asked: tuple[Prompt, ...], *, logprobs: bool) -> list[Answer]:
    def told(prompt: Prompt, answer: Answer) -> None:
        text = f"{prompt.id}: {counted(len(answer.output_ids), 'token')}"
        session.emit(Event("baseline", "info", text))

    async def ask() -> list[Answer]:
        async with session.completions() as client:
            timeout = session.service.smoke.timeout
            return await capture(client, asked, timeout, told, logprobs=logprobs)

    try:
        return anyio.run(ask)
    except ServerError as error:
        raise Refused(
            f"no baseline: {error.message}",
            remedy=f"opsctl diagnose {session.host.name}",
            code="capture_failed",
        ) from None


def every(session: Session) -> list[Baseline]:
    """Those on the host, the last one first; what cannot be read is said and left out."""
    found = []
    for name in session.call("list_baselines"):
        try:
            found.append(load(session.call("read_baseline", name=name), name))
        except UsageError as error:
            session.emit(Event("baseline", "warn", error.message))
    return found


def named(session: Session, name: str) -> Baseline:
    """A baseline by its id on the host, or by a file here, which a `/` or `.json` tells.

    Raises:
        UsageError: there is no such file, or it is no baseline.
        Refused: the host has none of that id.
    """
    if "/" in name or name.endswith(".json") or _is_file(name):
        return _of_file(name)
    return load(session.call("read_baseline", name=name), name)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # a name that is too long for one
        return False


def _of_file(name: str) -> Baseline:
    try:
        return load(Path(name).read_text(encoding="utf-8"), name)
    except (OSError, ValueError) as error:  # of its name or of its content
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(
            f"cannot read {name}: {why}", remedy="opsctl baseline export writes one"
        ) from None


def command(session: Session, prompts: Path | None = None, *, deep: bool = False) -> str:
    """What makes one of this service, twice a load."""
    words = ["opsctl", "baseline", "capture", session.host.name, "--restart"]
    words += ["--deep"] if deep else []
    words += ["--prompts", str(prompts)] if prompts else []
    return shlex.join(words)


def choose(
    session: Session, now: Identity, name: str | None, deep: Sequence[Prompt] = ()
) -> tuple[Baseline | None, str]:
    """The baseline to compare with: the one of that name, or the last plain one that fits, else
    the last trusted one, of those that have the most of `deep`; without one the reason.

    Raises:
        Refused: the one that was named is of another model or precision.
    """
    host = session.host.name
    if name is not None:
        found = named(session, name)
        unlike = found.identity.unlike(now)
        if unlike:
            raise Refused(
                f"{found.label} cannot be compared with this server: {'; '.join(unlike)}",
                remedy=f"opsctl baseline capture {host} makes one of this server",
                code="baseline_unlike",
            )
        return found, ""
    known = every(session)
    fitting = [each for each in known if not each.identity.unlike(now)]
    if fitting:
        plain = [each for each in fitting if each.reference == "plain"]
        return min(plain or fitting, key=lambda each: len(each.lacks(deep))), ""
    remedy = command(session, deep=bool(deep))
    if known:
        why = "; ".join(known[0].identity.unlike(now))
        return None, f"none of {counted(len(known), 'baseline')} fits: {why}; {remedy}"
    return None, f"there is no baseline: {remedy}"


def listing(session: Session) -> Report:
    rows = [_row(each) for each in every(session)]
    text = counted(len(rows), "baseline")
    return plain_report(session, "baseline list", text, data={"baselines": rows})


def export(session: Session, name: str | None) -> tuple[Report, str]:
    """The report, and the baseline's JSON; the last one without a name.

    Raises:
        Refused: there is none.
    """
    names = session.call("list_baselines") if name is None else [name]
    if not names:
        raise Refused(
            "there is no baseline to export",
            remedy=f"opsctl baseline capture {session.host.name} --restart",
            code="no_such_baseline",
        )
    text: str = session.call("read_baseline", name=names[0])
    found = load(text, names[0])
    return plain_report(session, "baseline export", found.label, data=_row(found)), text


def bring(session: Session, path: Path) -> Report:
    """Put an exported one on the host."""
    found = _of_file(str(path))
    kept = session.call("write_baseline", name=found.id, text=found.model_dump_json())
    text = f"{found.label} is kept in {kept['path']}"
    return plain_report(session, "baseline import", text, data=_row(found))


def remove(session: Session, name: str) -> Report:
    session.call("remove_baseline", name=name)
    return plain_report(session, "baseline remove", f"baseline {name} is gone", data={"id": name})


def _row(made: Baseline) -> dict[str, Any]:
    return {
        "id": made.id,
        "created": made.created,
        "reference": made.reference,
        "prompts": len(made.answers),
        "generation": made.generation,
        "host": made.host,
        "model": made.identity.model_path,
        "precision": made.identity.precision,
        "quantization": made.identity.quantization or None,
        "version": made.identity.version,
        "algorithm": made.identity.algorithm or None,
        "near_tie_nats": made.near,
    }
