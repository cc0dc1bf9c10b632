"""Remedies that can be pasted: the commands in them name the host that the run was about.

What a remedy says comes from many places, the host's own program and the rules of the diagnosis
among them, and few of those know what the inventory calls the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from opsctl.errors import EXIT_UNREACHABLE

if TYPE_CHECKING:
    from opsctl.report import Reason, Report

# The commands that take HOST, by their full name; `context.on_host` adds them.
ON_HOST: set[str] = {"diagnose", "unit render"}
# Of these the ones with a NAME before HOST.
NAMED: set[str] = set()
# Their remedies end in a command of ssh's, to be pasted as it is.
_PASTED = frozenset({"host_key_unknown", "host_key_changed"})


def addressed(text: str, host: str, service: str = "") -> str:
    """`text` with `host` in each `opsctl COMMAND` that takes one, and `service` where the host has
    several. A host that is there already, or the word HOST for it, stays one."""
    names = "|".join(sorted(map(re.escape, ON_HOST), key=len, reverse=True))
    named = rf"(?: (?:HOST|{re.escape(host)})(?![\w@-]|\.\w))?(?: --service \S+)?"
    where = f"{host} --service {service}" if service else host
    ahead = "|".join(sorted(map(re.escape, NAMED))) or "(?!)"
    command = rf"(?:{ahead}) [\w-]+|(?!(?:{ahead})\b)(?:{names})"
    return re.sub(
        rf"\bopsctl ({command})(?![\w-]){named}", lambda match: f"opsctl {match[1]} {where}", text
    )


def of_report(report: Report, host: str, service: str = "") -> Report:
    """`report` with the remedies of its reasons and findings addressed, and a next command where
    a refusal or a lost host names none."""

    def reason(each: Reason) -> Reason:
        remedy = addressed(each.remedy, host, service)
        if each.code in _PASTED:
            return each.model_copy(update={"remedy": remedy})
        return each.model_copy(update={"remedy": _with_next(remedy, report, host, service)})

    data = dict(report.data)
    if isinstance(data.get("findings"), list):
        data["findings"] = list(_findings(data["findings"], host, service))
    return report.model_copy(update={"reasons": tuple(map(reason, report.reasons)), "data": data})


def _findings(findings: Iterable[Any], host: str, service: str) -> Iterable[Any]:
    for found in findings:
        if isinstance(found, Mapping) and found.get("remedy"):
            yield {**found, "remedy": addressed(str(found["remedy"]), host, service)}
        else:
            yield found


def _with_next(remedy: str, report: Report, host: str, service: str) -> str:
    doctor = addressed("opsctl doctor", host, service)
    if report.verdict in {"refused", "error"} and not remedy:
        return f"{doctor} says what is in the way"
    if report.exit_code == EXIT_UNREACHABLE and "opsctl " not in remedy:
        return f"{remedy}; then: {doctor}"
    return remedy
