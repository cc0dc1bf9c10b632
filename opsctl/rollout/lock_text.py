"""Who holds the lock of a service, and what may be done about it, in sentences for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsctl.errors import LockHeld
from opsctl.text import duration, moment


def describe(holder: Mapping[str, Any] | None) -> str:
    """Who holds the lock, from where, since when and why; None for nobody."""
    if holder is None:
        return "nobody holds the lock"
    return f"{holder.get('who', 'somebody')} holds the lock{_details(holder)}"


def whose(holder: Mapping[str, Any]) -> str:
    """The same of a lock that is no longer held: `ann@laptop's, since …: why`."""
    return f"{holder.get('who', 'somebody')}'s{_details(holder)}"


def _details(holder: Mapping[str, Any]) -> str:
    text = ""
    if holder.get("from"):
        text += f", from {holder['from']}"
    if holder.get("since"):
        text += f", since {moment(float(holder['since']))}"
    if holder.get("held_s") is not None:
        text += f" ({duration(float(holder['held_s']))} ago)"
    if holder.get("pid"):
        text += f", as pid {holder['pid']} on the host"
    return f"{text}: {holder.get('why') or 'no reason given'}"


def held(now: Mapping[str, Any], host: str, *, waited: float = 0.0, said: str = "") -> LockHeld:
    """The error of a command that wanted the lock; `now` is the host's `lock_state`.

    `waited` seconds it waited in vain. `said` is the host's own word of the holder, for one that
    let go of the lock meanwhile.
    """
    holder, terms = now.get("holder"), now.get("terms")
    text = describe(holder) if holder or not said else said
    if waited:
        text += f"; waited {duration(waited)} for it and gave up"
    if now.get("by_guard") and terms is not None:
        goal = "starting the service"
        if terms.get("to") is not None:
            goal = f"putting generation {terms['to']} back"
        return LockHeld(
            f"{text}; the guard is {goal}",
            remedy=f"wait: --lock-wait 10m does, and opsctl status {host} says how far it is",
        )
    longer = "a longer --lock-wait than that" if waited else "--lock-wait 10m waits for it"
    return LockHeld(
        text, remedy=f"{longer}; opsctl lock show {host} says who holds it now, since when and why"
    )
