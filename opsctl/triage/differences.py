"""What is another than when the service last worked, as far as anything recorded it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from opsctl.text import clock
from opsctl.triage.facts import Facts, Start

# SGLang chooses these anew at each start.
_VOLATILE: Final = frozenset({"random_seed", "nccl_port", "dist_init_addr", "port_args"})
_SHOWN: Final = 4


def differences(facts: Facts) -> list[dict[str, str]]:
    """[{what, text}]: generation, files, unit, arguments, boot, packages, version; empty where
    nothing differs or no earlier start that worked is known."""
    worked = facts.last_worked
    if worked is None:
        return []
    found = [*_generation(facts, worked), *_recorded(facts), *_machine(facts, worked)]
    found += _arguments(facts, worked)
    return [{"what": what, "text": text} for what, text in found]


def _generation(facts: Facts, worked: Start) -> Iterator[tuple[str, str]]:
    swaps = [e for e in facts.audit if e.get("event") == "swap" and e["time"] > worked.began]
    if swaps:
        last = swaps[-1]
        what = facts.generation and facts.generation.get("set")
        label = f" ({what['name']} {what['version']})" if what else ""
        by = f" by {last['who']}" if last.get("who") else ""
        yield "generation", f"{last.get('number')}{label}, put there {clock(last['time'])}{by}"
    version = (facts.generation or {}).get("version")
    if version and facts.version and version != facts.version:
        yield "version", f"{facts.version}, where the generation was made on {version}"


def _recorded(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.drift:
        yield "package files", "changed by hand: " + _few(list(facts.drift))
    if facts.unit_drift:
        yield "unit files", "not as recorded: " + _few(list(facts.unit_drift))


def _machine(facts: Facts, worked: Start) -> Iterator[tuple[str, str]]:
    boot = facts.machine.get("boot") or {}
    if boot and boot["booted"] > worked.ended:
        yield "boot", f"the host came up {clock(boot['booted'])}, after its last line"
    changed: Mapping[str, Any] = facts.machine.get("changed") or {}
    newer = {path: at for path, at in changed.items() if at > (worked.ready_at or worked.began)}
    for path, at in sorted(newer.items(), key=lambda each: each[1]):
        yield ("packages" if "log" in path else "unit files"), f"{path} written {clock(at)}"


def _arguments(facts: Facts, worked: Start) -> Iterator[tuple[str, str]]:
    """By what SGLang itself said of its arguments in either start."""
    latest = next((start for start in facts.starts if start.arguments), None)
    if latest is None or not worked.arguments or latest.began < worked.began:
        return
    now, then = latest.arguments, worked.arguments
    names = [n for n in {**then, **now} if then.get(n) != now.get(n) and n not in _VOLATILE]
    if names:
        each = [f"{n} {then.get(n, '-')} -> {now.get(n, '-')}" for n in sorted(names)]
        yield "arguments", _few(each)


def _few(texts: list[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more
