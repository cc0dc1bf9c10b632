"""The states and figures of a host in words: what screen, lines and `--once` have in common."""

from __future__ import annotations

from typing import Literal

from opsctl.journal import Diagnosis
from opsctl.rollout import guard_text
from opsctl.text import duration
from opsctl.units.properties import Unit
from opsctl.watch.model import HostModel

# A style only underlines what the words say.
Style = Literal["", "bold", "good", "warn", "bad", "bar"]

_DEADLY = frozenset({"fatal", "hardware"})
_GRAVE = _DEADLY | {"error"}
# A line of the journal that came so long ago says little of now, seconds.
_RECENT = 5.0


def link(model: HostModel, now: float) -> tuple[str, Style]:
    """How the data came, and how old it is."""
    age = model.age(now)
    heard = "never heard" if age is None else f"last heard {duration(age)} ago"
    if model.link == "up":
        return ("live", "good") if model.fresh(now) else (heard, "warn")
    if model.lost is None:
        return "connecting", "warn"
    what = "UNREACHABLE" if age is None else "CONNECTION LOST"
    tries = f", attempt {model.attempt}" if model.attempt > 1 else ""
    return f"{what}, {heard}{tries}", "bad"


def phase(model: HostModel) -> tuple[str, Style]:
    """Where the service stands."""
    unit, start = model.unit, model.start
    if unit is None:
        return ("unknown", "warn") if model.lost is None else (model.lost.message, "bad")
    if not unit.active:
        return _not_active(unit)
    if start is not None and start.diagnosis.crash and start.diagnosis.severity in _DEADLY:
        return f"crashed: {start.diagnosis.kind}", "bad"
    if not model.caught_up:
        return "its journal is being read", "warn"
    if start is None or model.loading:
        return f"loading: {start.progress.label if start else 'starting'}", "warn"
    return "ready", "good"


def _not_active(unit: Unit) -> tuple[str, Style]:
    if not unit.exists:
        return f"there is no unit {unit.name}", "bad"
    if unit.sub_state == "auto-restart":
        return "it died, and systemd is about to start it again", "bad"
    return unit.state, "bad" if unit.active_state == "failed" else "warn"


def severity(found: Diagnosis) -> tuple[str, Style]:
    """In capitals where somebody should get up."""
    grave = found.severity in _GRAVE
    return (found.severity.upper() if grave else found.severity), "bad" if grave else "warn"


def incident(model: HostModel, host_now: float) -> tuple[str, str, Style]:
    """The last incident and what to do about it."""
    last = model.last_incident()
    if last is None:
        return "none seen", "", ""
    found, at, present = last
    word, style = severity(found)
    ago = f", {duration(host_now - at)} ago" if host_now > at > 0 else ""
    where = f" in {found.phase}" if found.phase else ""
    whose = "" if present else " (an earlier start)"
    return f"{word} {found.kind}{where}{ago}{whose}", found.remedy, style


def guard(model: HostModel) -> tuple[str, str, Style]:
    """What the guard on the host waits for and, where its rollout lost its client, what to do about
    that; empty where it is not armed."""
    if model.guard is None:
        return "", "", ""
    held = bool(model.lock)
    text = guard_text.brief(model.guard, model.unit, held=held)
    return text, "" if held else guard_text.ways_out(model.name), "warn" if held else "bad"


def requests(model: HostModel, host_now: float) -> str:
    """Running and queued requests and the KV pool, and who said so when."""
    start = model.start
    if start is None:
        return "-"
    now = start.now
    usage = "-" if now.usage is None else f"{now.usage:.0%}"
    parts = [f"{_shown(now.running)} running, {_shown(now.queued)} queued", f"kv {usage}"]
    parts.append(f"cuda graph {_percent(start.measured.acceptance.cuda_graph_share)}")
    text = "   ".join(parts)
    if start.no_answer:
        return f"{text}   NO ANSWER: {start.no_answer}"
    if now.source:
        ago = max(host_now - now.at, 0.0)
        text += f"   ({now.source}{f', {duration(ago)} ago' if ago > _RECENT else ''})"
    return text


def acceptance(model: HostModel, host_now: float) -> str:
    """The accept length of late."""
    start = model.start
    if start is None or not start.samples:
        return "no decode line of this start yet"
    measured = start.measured
    length = measured.acceptance.accept_len
    if length is None:
        text = "no speculation"
    else:
        text = f"{length.mean:.2f}  p10 {length.p10:.2f}  p50 {length.p50:.2f}"
        text += f"  p90 {length.p90:.2f}"
        if measured.draft_acceptance is not None:
            text += f"  drafts accepted {measured.draft_acceptance:.0%}"
    return text + _idle(start.samples[-1].at, host_now)


def speed(model: HostModel, host_now: float) -> str:
    """Tokens per second of late."""
    start = model.start
    if start is None or not start.samples:
        return "-"
    found = start.measured.gen_throughput
    if found is None:
        return "-"
    ranks = f", each of {start.measured.ranks} data-parallel ranks" * (start.measured.ranks > 1)
    return f"{found.p50:.0f}  p10 {found.p10:.0f}  p90 {found.p90:.0f}{ranks}" + _idle(
        start.samples[-1].at, host_now
    )


def one_line(model: HostModel, now: float) -> str:
    """A host in a row: state first, and then how it does."""
    how, _ = link(model, now)
    if model.unit is None:
        said = f": {model.lost.message}" if model.lost is not None else ""
        return f"{how}{said}"
    parts = [phase(model)[0]] if model.fresh(now) else [how, phase(model)[0]]
    start = model.start
    if start is not None and start.ready:
        length = start.measured.acceptance.accept_len
        rate = start.measured.gen_throughput
        parts.append(f"{_shown(start.now.running)} running {_shown(start.now.queued)} queued")
        parts.append(f"accept {length.mean:.2f}" if length else "accept -")
        parts.append(f"{rate.p50:.0f} token/s" if rate else "- token/s")
    armed, ways_out, _ = guard(model)
    if armed:
        parts.append(f"the guard {armed}" if ways_out else "guard armed")
    last = model.last_incident()
    if last is not None:
        whose = "" if last[2] else " in an earlier start"
        parts.append(f"{severity(last[0])[0]} {last[0].kind}{whose}")
    return ", ".join(parts)


def _idle(at: float, host_now: float) -> str:
    ago = host_now - at
    return f"  (idle, last line {duration(ago)} ago)" if ago > 2 * _RECENT else ""


def _shown(value: int | None) -> str:
    return "-" if value is None else str(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
