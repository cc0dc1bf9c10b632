"""history, verify and audit: what the host records, and whether it is so."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opsctl.cli.context import Command, on_host
from opsctl.cli.terminal import finding_lines, plain
from opsctl.text import duration

if TYPE_CHECKING:
    from opsctl.report import Report

# Of an entry of the log, what has a column of its own.
_COLUMNS = ("time", "event", "who", "number", "why")


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    for function in (history, verify, audit):
        app.command()(on_host(function))


def history(command: Command, session: Any) -> Report:
    """Every generation: when, which set, who, from where, why, and how it ended.

    \b
    Examples:
      opsctl history ct200
    """
    from opsctl.rollout import history as records

    report = records.history(session)
    if not command.json:
        _print(
            ("", "gen", "when", "status", "set", "signed", "version", "who", "result", "why"),
            [_generation(row) for row in report.data["generations"]],
        )
        _print(
            ("when", "what", "gen", "who", "why"),
            [_move(move) for move in report.data["moves"]],
            above="\nput back\n",
        )
    return report


def verify(command: Command, session: Any) -> Report:
    """Compare the host with its records and the wheel's RECORD, changing nothing.

    \b
    Examples:
      opsctl verify ct200
    """
    from opsctl.rollout import verify as checks

    report = checks.verify(session)
    if not command.json:
        # Those that fail are the report's reasons.
        kept = [found for found in report.data["findings"] if found["status"] != "fail"]
        sys.stdout.write(finding_lines(kept))
    return report


def audit(
    command: Command,
    session: Any,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="The last so many.")] = 50,
) -> Report:
    """The host's log of what was done to the service, by whom and when.

    \b
    Examples:
      opsctl audit ct200 --last 20
    """
    from opsctl.rollout import history as records

    report = records.audit_log(session, last)
    if not command.json:
        _print(
            ("when", "event", "gen", "who", "details"),
            [_entry(entry) for entry in report.data["entries"]],
        )
    return report


def _generation(row: Mapping[str, Any]) -> tuple[str, ...]:
    mark = ("*" if row["in_place"] else "") + ("<" if row["rollback"] else "")
    if row["fault"]:
        return (mark, str(row["number"]), "", "unreadable", *[""] * 5, row["fault"])
    patch_set = row["set"]
    label = f"{patch_set['name']} {patch_set['version']}" if patch_set else "none"
    if row["adopted"]:
        label += ", changed by hand"
    if row["with_unit"]:
        label += ", with unit"
    who = row["who"] or ""
    if row["from"]:
        who += f" from {row['from']}"
    return (
        mark,
        str(row["number"]),
        _clock(row["created"]),
        str(row["status"]),
        label,
        (row["signed"] or {}).get("principal", ""),
        str(row["version"]),
        who,
        _result(row["verdict"] or {}),
        row["why"] or "",
    )


def _result(verdict: Mapping[str, Any]) -> str:
    parts = []
    if verdict.get("accept_len") is not None:
        parts.append(f"accept {verdict['accept_len']:.2f}")
    if verdict.get("ready_s") is not None:
        parts.append(f"ready {duration(verdict['ready_s'])}")
    if verdict.get("verdict") not in {None, "pass"}:
        parts.append(str(verdict.get("code") or verdict["verdict"]))
    return ", ".join(parts)


def _move(move: Mapping[str, Any]) -> tuple[str, ...]:
    number = move["number"]
    return (
        _clock(move["time"]),
        str(move["what"]),
        "" if number is None else str(number),
        str(move["who"]),
        str(move["why"]),
    )


def _entry(entry: Mapping[str, Any]) -> tuple[str, ...]:
    details = []
    if entry.get("why"):
        details.append(str(entry["why"]))
    patch_set = entry.get("set")
    if isinstance(patch_set, Mapping):
        details.append(f"{patch_set.get('name')} {patch_set.get('version')}")
    details += [
        f"{key}={value}"
        for key, value in sorted(entry.items())
        if key not in {*_COLUMNS, "set"} and not isinstance(value, dict | list)
    ]
    number = entry.get("number")
    return (
        _clock(entry.get("time")),
        str(entry.get("event", "")),
        "" if number is None else str(number),
        str(entry.get("who") or ""),
        ", ".join(details),
    )


def _clock(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _print(head: Sequence[str], rows: Sequence[Sequence[str]], above: str = "") -> None:
    """Columns as wide as their widest; those without any value are left out. `above` is a title,
    which nothing has where there are no rows."""
    if rows:
        sys.stdout.write(above)
    cleaned = [[plain(cell) for cell in row] for row in rows]
    kept = [i for i in range(len(head)) if any(row[i] for row in cleaned)]
    widths = {i: max(len(head[i]), *(len(row[i]) for row in cleaned)) for i in kept}
    for row in [list(head), *cleaned] if cleaned else []:
        line = "  ".join(row[i].ljust(widths[i]) for i in kept)
        sys.stdout.write(line.rstrip() + "\n")
