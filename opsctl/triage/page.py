"""The triage on one screen: 80 columns, the cause and what to run first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opsctl.text import clock, counted, duration
from opsctl.triage import space
from opsctl.triage.kernel import messages

WIDTH: Final = 80
_LABEL: Final = 13
# A row takes no more lines than that; what is cut off is in --json.
_MOST: Final = 3
_EACH: Final = 4

Data = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A label and its lines, each short enough; `loud` is what decides."""

    label: str
    lines: tuple[str, ...]
    loud: bool = False


def rows(data: Data, summary: str) -> list[Row]:
    """The page of a triage's report, from the report's `data` and `summary`."""
    cause = data["cause"]
    first = {"LIKELY CAUSE": _cause_text(cause)} if cause else {"VERDICT": summary}
    loud = {**first, "RUN": _run(cause)}
    quiet = [Row(label, _wrapped(text)) for label, text in _body(data) if text]
    head = [Row(label, _wrapped(text, 4), loud=True) for label, text in loud.items() if text]
    evidence = [line for each in (cause or {}).get("evidence", ()) for line in _wrapped(each, 2)]
    because = [Row("because", tuple(evidence[:6]))] if evidence else []
    return [*head, *because, *quiet]


def text(page: list[Row]) -> str:
    """The rows as lines of `WIDTH` columns at most."""
    lines = []
    for row in page:
        label = row.label
        for line in row.lines:
            lines.append(f"{label:<{_LABEL}}{line}".rstrip())
            label = ""
    return "\n".join(lines) + "\n"


def _cause_text(cause: Data) -> str:
    doubt = "" if cause["confidence"] == "high" else f" ({cause['confidence']} confidence)"
    return f"{cause['text']}{doubt}"


def _run(cause: Data | None) -> str:
    if cause is None:
        return ""
    if cause["command"]:
        return str(cause["command"])
    return f"no runbook: {cause['remedy']}" if cause["remedy"] else ""


def _body(data: Data) -> Iterator[tuple[str, str]]:
    for each in data["also"][:2]:
        book = f" [{each['runbook'] or each['command']}]" if each["command"] else ""
        yield "also", f"{each['text']}{book}"
    yield "unit", _unit(data["unit"])
    yield "http", data["http"]["text"]
    yield "starts", _starts(data["starts"])
    yield "acceptance", _acceptance(data["acceptance"])
    yield "last worked", clock(data["last_worked"]) if data["last_worked"] else ""
    for each in data["differences"][:_EACH]:
        yield "since then", f"{each['what']}: {each['text']}"
    for each in reversed(data["deploys"]):
        yield "deploy", _deploy(each)
    yield from _machine(data)
    yield "orphans", _orphans(data["orphans"])
    yield "lock", _lock(data["lock"])
    if not data["differences"]:  # which have them otherwise
        yield "changed", ", ".join(data["drift"][:_EACH])
    yield "not known", _missing(data["missing"])


def _unit(unit: Data | None) -> str:
    if unit is None:
        return ""
    if not unit["exists"]:
        return f"{unit['name']} does not exist"
    parts = [unit["state"]]
    if unit["active_for_s"] and unit["state"].startswith("active"):
        parts[0] += f" for {duration(unit['active_for_s'])}"
    parts += [counted(unit["n_restarts"], "restart")]
    parts += [unit["phase"]] if unit["phase"] else []
    return ", ".join([*parts, f"invocation {unit['invocation'][:8] or 'none'}"])


def _starts(starts: list[Data]) -> str:
    each = []
    for start in starts[:3]:
        word = "came up" if start["ready_at"] else "did not come up"
        kind = f", {start['kind']}" if start["incident"] else ""
        each.append(f"{clock(start['began'])[5:]} {word}{kind}")
    return "; ".join(each)


def _acceptance(found: Data) -> str:
    if found["accept_len"] is None:
        return ""
    floor = f", floor {found['floor']:.2f}" if found["floor"] is not None else ""
    lines = counted(found["decode_lines"], "decode line")
    return f"{found['accept_len']:.2f} tokens a step over {lines}{floor}"


def _deploy(record: Data) -> str:
    name = record["set"]
    what = f"{name['name']} {name['version']}" if name else "no patch set"
    when = clock(record["created"])[:16] if record["created"] else ""
    parts = [f"generation {record['number']}", str(record["status"]), what, when]
    return ", ".join(part for part in [*parts, str(record["who"] or "")] if part)


def _machine(data: Data) -> Iterator[tuple[str, str]]:
    machine = data["machine"]
    if not machine:
        return
    memory, boot = machine.get("memory"), machine.get("boot")
    host = [f"load {machine['load'][0]:.1f} on {machine['cpus']} cores"]
    if memory:
        free, total = space.gib(memory["available"]), space.gib(memory["total"])
        host.insert(0, f"{free} of {total} memory available")
    if boot:
        host.append(f"up {_days(boot['uptime_s'])}")
    yield "machine", ", ".join(host)
    yield "disk", _disk(machine.get("filesystems") or {})
    yield "gpu", _gpu(machine)
    kernel = machine.get("kernel")
    if kernel is not None:
        found = [str(each) for each in messages(kernel["lines"])]
        yield "kernel", "; ".join(found[-2:]) or "nothing that matters in the last day"


def _days(seconds: float) -> str:
    if seconds < 3 * 3600:
        return duration(seconds)
    hours = seconds / 3600
    return f"{hours:.0f}h" if hours < 72 else f"{hours / 24:.0f} days"


def _disk(filesystems: Mapping[str, Data]) -> str:
    """The fullest first, each file system once, with the roles that lie on it."""
    roles: dict[Any, list[str]] = {}
    facts: dict[Any, Data] = {}
    for role, each in filesystems.items():
        if not each.get("fault"):
            roles.setdefault(each["device"], []).append(role)
            facts[each["device"]] = each
    fullest = sorted(facts, key=lambda key: facts[key]["free"] / (facts[key]["size"] or 1))
    return "; ".join(
        f"{space.gib(facts[key]['free'])} of {space.gib(facts[key]['size'])} free "
        f"({' '.join(roles[key])})"
        for key in fullest[:2]
    )


def _gpu(machine: Data) -> str:
    gpus = machine.get("gpus")
    if not gpus:
        return ""
    used = sum(gpu["memory_used_mib"] or 0 for gpu in gpus)
    total = sum(gpu["memory_total_mib"] or 0 for gpu in gpus)
    foreign = [p for p in machine.get("gpu_processes") or () if not p["own"]]
    held = sum(p["memory_mib"] or 0 for p in foreign)
    text = f"{len(gpus)} x {gpus[0]['name']}, {used} of {total} MiB used"
    return text + (f", {held} MiB by {len(foreign)} not of the unit" if foreign else "")


def _orphans(orphans: list[Data]) -> str:
    each = [f"pid {o['pid']} {o['user']}: {', '.join(o['why'])}" for o in orphans[:_EACH]]
    return "; ".join(each)


def _lock(lock: Data | None) -> str:
    if lock is None:
        return ""
    held = duration(float(lock.get("held_s") or 0.0))
    return f"{lock.get('who') or 'somebody'}, for {held}: {lock.get('why') or 'no reason given'}"


def _missing(missing: Mapping[str, str]) -> str:
    """Each reason once."""
    parts: dict[str, list[str]] = {}
    for part, why in missing.items():
        parts.setdefault(why, []).append(part)
    return "; ".join(f"{', '.join(each)}: {why}" for why, each in parts.items())


def _wrapped(text: str, most: int = _MOST) -> tuple[str, ...]:
    found = textwrap.wrap(
        " ".join(text.split()), WIDTH - _LABEL, max_lines=most, placeholder=" …",
        break_long_words=True,
    )  # fmt: skip
    return tuple(found) or ("",)
