"""Whether a host is what its records say: every file by hash, and nothing left half done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opsctl import errors
from opsctl.errors import Refused
from opsctl.report import Reason, Report
from opsctl.rollout import drift, guard_text
from opsctl.rollout.doctor import Finding
from opsctl.rollout.drift import adopted_text, changed_files, changed_unit_files, reinstalled_files
from opsctl.rollout.plan import require_install
from opsctl.rollout.session import Session
from opsctl.rollout.way_back import rollback_target
from opsctl.text import counted
from opsctl.units.properties import Unit

# More of one kind are one finding: another version's RECORD makes thousands.
_EACH = 20


def verify(session: Session) -> Report:
    """Host against recorded generation and RECORD; changes nothing.

    Raises:
        Refused: the distribution cannot be looked at.
    """
    facts = session.inspect(audit=True)
    install = require_install(facts)
    records: list[dict[str, Any]] = session.call("generations", damaged=True)
    host = session.host.name
    findings = [
        *_records(facts, records),
        *_files(facts, install, host),
        *_adopted(facts),
        *_package(facts, install, host),
        *_unit_files(facts, host),
        *_half_done(facts, install, records, host),
        *_way_back(session, facts, records),
        *_guard(facts, host),
    ]
    faults = [finding for finding in findings if finding.status == "fail"]
    generation = facts["generation"]
    number = generation["number"] if generation else None
    place = "no deploy is recorded" if generation is None else f"generation {number}"
    text = f"{place}, and every file is as it and the wheel's RECORD say"
    by_hand = adopted_text(generation)
    if by_hand:
        text = f"{by_hand}; every file is as it and the wheel's RECORD say"
    if faults:
        names = ", ".join(dict.fromkeys(f.name for f in faults))
        text = f"{place}; {counted(len(faults), 'finding')}: {names}"
    return Report(
        command="verify",
        host=host,
        service=session.service.name,
        verdict="fail" if faults else "pass",
        exit_code=errors.EXIT_REFUSED if faults else errors.EXIT_OK,
        summary=text,
        reasons=tuple(Reason(code=f.name, message=f.message, remedy=f.remedy) for f in faults),
        generation=number,
        data={
            "findings": [finding.to_json() for finding in findings],
            "files": len(generation["files"]) if generation else 0,
            "record": install["audit"],
        },
    )


def _records(facts: Mapping[str, Any], records: list[dict[str, Any]]) -> Iterator[Finding]:
    fault = facts["state_fault"]
    if fault:
        yield Finding("state", "fail", fault["message"], fault["remedy"])
    for record in records:
        if "fault" in record and not (fault and fault["message"] == record["fault"]["message"]):
            yield Finding("record", "fail", record["fault"]["message"], record["fault"]["remedy"])


def _comparable(facts: Mapping[str, Any], install: Mapping[str, Any]) -> bool:
    """Whether the recorded generation is about what is installed now."""
    generation = facts["generation"]
    if generation is None:
        return False
    return all(generation[key] == install[key] for key in ("version", "package_dir"))


def _files(facts: Mapping[str, Any], install: Mapping[str, Any], host: str) -> Iterator[Finding]:
    generation = facts["generation"]
    if generation is None:
        return
    number = generation["number"]
    if not _comparable(facts, install):
        yield Finding(
            "version",
            "fail",
            f"generation {number} is of {generation['version']} in {generation['package_dir']}, "
            f"but {install['version']} in {install['package_dir']} is installed",
            f"opsctl deploy {host} with a set for that version, or reinstall "
            f"{generation['version']}",
        )
        return
    odd = changed_files(facts)
    now = install["files"]
    back = reinstalled_files(facts)
    if back:
        yield Finding(
            "reinstalled",
            "fail",
            f"the wheel's own again, not generation {number}'s: {_some(back)}",
            f"opsctl rollback {host} {number} puts the generation's files back, "
            f"opsctl deploy {host} the present set's",
        )
    for path in odd:
        if path not in back:
            gone = now[path]["sha256"] is None
            yield Finding(
                "file",
                "fail",
                f"{path} {'is missing' if gone else 'was changed by hand'}: it is not "
                f"generation {number}'s",
                f"opsctl plan {host} shows the difference; {drift.remedy(host, number)}",
            )


def _adopted(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """That what is recorded, and so no fault, was once a hand's."""
    text = adopted_text(facts["generation"])
    if text:
        yield Finding("by_hand", "warn", text, "put the change into a patch of the set")


def _package(facts: Mapping[str, Any], install: Mapping[str, Any], host: str) -> Iterator[Finding]:
    if install.get("editable"):
        yield Finding(
            "editable",
            "fail",
            f"{install['package_dir']} is an editable install, whose RECORD lists no files",
            "install the release's wheel in that environment",
        )
        return
    ours = facts["generation"]["files"] if _comparable(facts, install) else {}
    said = {
        "modified": "is not as the wheel's RECORD has it, and no generation explains it",
        "missing": "is in the wheel's RECORD and not on disk",
        "extra": "is neither in the wheel's RECORD nor of a generation",
    }
    for kind, text in said.items():
        remedy = f"{drift.REINSTALL} and opsctl deploy {host}"
        if kind == "extra":
            remedy = "look at it and remove it by hand"
        odd = [path for path in install["audit"][kind] if path not in ours]
        if len(odd) > _EACH:
            yield Finding(kind, "fail", f"{_some(odd)}: each {text}", remedy)
        else:
            yield from (Finding(kind, "fail", f"{path} {text}", remedy) for path in odd)


def _unit_files(facts: Mapping[str, Any], host: str) -> Iterator[Finding]:
    """The unit's own files, where the generation has them."""
    for path in changed_unit_files(facts):
        number = facts["generation"]["number"]
        yield Finding(
            "unit_file",
            "fail",
            f"{path} is not generation {number}'s",
            f"opsctl rollback {host} {number} puts it back; "
            f"opsctl plan {host} shows how it differs from the inventory",
        )


def _half_done(
    facts: Mapping[str, Any],
    install: Mapping[str, Any],
    records: list[dict[str, Any]],
    host: str,
) -> Iterator[Finding]:
    lock = facts["lock"]
    if lock:
        message = f"{lock['who']} is at work ({lock['why']}): what differs may be its doing"
        yield Finding("lock", "warn", message, "run it again when that has ended")
    swap = facts["swap"]
    if swap:
        yield Finding(
            "swap",
            "warn" if lock else "fail",
            f"a swap from generation {swap['from']} to {swap['to']} "
            f"{'is under way' if lock else 'was cut off'}: the files may be a mixture",
            f"opsctl rollback {host} finishes it",
        )
    for path in install.get("leftovers", ()):
        yield Finding(
            "leftover",
            "warn" if lock else "fail",
            f"{path} is what a swap that was cut off left",
            "the next swap removes it; it is safe to remove by hand while nobody deploys",
        )
    # An older one is history: what was deployed since has another number.
    if records and records[-1].get("status") == "staged" and not lock:
        number = records[-1]["number"]
        remedy = f"opsctl confirm {host} if it is in place and serves, "
        remedy += f"opsctl rollback {host} to leave it"
        if facts["guard"]["terms"] is None:  # a deploy is refused while the guard waits
            remedy += f", opsctl deploy {host} to deploy again"
        message = f"generation {number} was staged, and its deploy never came to an end"
        yield Finding("staged", "fail", message, remedy)


def _way_back(
    session: Session, facts: dict[str, Any], records: list[dict[str, Any]]
) -> Iterator[Finding]:
    """Whether what a rollback needs is there, which is looked at too late otherwise."""
    if facts["state_fault"] or not _comparable(facts, facts["install"]):
        return
    readable = {record["number"]: record for record in records if "fault" not in record}
    try:
        number = rollback_target(facts, readable, None)
    except Refused:
        return
    if number is None:
        return
    try:
        session.call("check_swap", number=number)
    except Refused as error:
        message = f"a rollback to generation {number} would fail: {error.message}"
        yield Finding("rollback", "fail", message, error.remedy)


def _guard(facts: Mapping[str, Any], host: str) -> Iterator[Finding]:
    terms, report = facts["guard"]["terms"], facts["guard"]["report"]
    if terms is not None and not facts["lock"]:
        yield Finding(
            "guard_pending",
            "fail",
            guard_text.pending(terms, Unit.from_show(facts["unit"])),
            guard_text.ways_out(host),
        )
    if report is not None:
        bad = report.get("error") or report.get("healthy") is False
        yield Finding(
            "guard_report",
            "fail" if bad else "warn",
            guard_text.describe(report),
            f"opsctl status {host}; the next rollout that ends well clears this",
        )


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    return ", ".join(paths[:5]) + more
