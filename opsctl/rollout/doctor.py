"""Everything that would make a deploy fail, each with its remedy. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from opsctl.errors import OpsctlError
from opsctl.inventory import Service
from opsctl.journal import redact
from opsctl.patchset import PatchSet
from opsctl.rollout import drift, lock_text
from opsctl.units.properties import Unit

Status = Literal["ok", "warn", "fail"]

# A set's files and their pre-images come to a few MB; below this something else is wrong too.
MIN_FREE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `fail` makes a deploy refuse; `warn` does not."""

    name: str
    status: Status
    message: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def examine(
    facts: Mapping[str, Any],
    service: Service,
    patchset: PatchSet | OpsctlError | None,
    name: str,
) -> list[Finding]:
    """Judge the host program's `inspect`. `patchset` is the expected one, or why there is none;
    `name` is the host's, for the commands that a remedy names."""
    unit = Unit.from_show(facts["unit"])
    host = facts["host"]
    findings = [
        Finding("ssh", "ok", f"connected to {host['hostname']}, uid {host['uid']}"),
        Finding("python", "ok", f"host program on Python {host['python']}"),
    ]
    findings += _unit(unit, service, name)
    findings += _install(facts, service, name)
    findings += _patchset(unit, patchset)
    findings += _disk(facts)
    findings += _port(facts, unit, service)
    findings += _leftovers(facts)
    findings += _state(facts, name)
    return findings


def _unit(unit: Unit, service: Service, host: str) -> Iterator[Finding]:
    if not unit.exists:
        yield Finding(
            "unit",
            "fail",
            f"{service.unit} does not exist on the host ({unit.load_state or 'not found'})",
            "correct services.*.unit in the inventory, or install the unit",
        )
        return
    if unit.load_state != "loaded":
        yield Finding(
            "unit",
            "fail",
            f"{service.unit} is {unit.load_state}",
            f"see `systemctl status {service.unit}`; a masked unit needs `systemctl unmask`",
        )
        return
    yield Finding("unit", "ok", f"{service.unit} is {unit.state}")
    if unit.n_restarts:
        yield Finding(
            "restarts",
            "warn",
            f"systemd restarted it {unit.n_restarts} times since the last start by hand",
            f"opsctl status {host} shows the last incident",
        )
    yield _daemon_reload(unit)
    yield _start_limit(unit, host)
    yield from _timeouts(unit, service)


def _daemon_reload(unit: Unit) -> Finding:
    if unit.need_daemon_reload:
        return Finding(
            "daemon_reload",
            "fail",
            "the unit file was edited and not reloaded: the next start would use the old one",
            "systemctl daemon-reload",
        )
    return Finding("daemon_reload", "ok", "systemd has the unit as it is on disk")


def _start_limit(unit: Unit, host: str) -> Finding:
    if unit.result == "start-limit-hit":
        return Finding(
            "start_limit",
            "warn",
            "the unit is in start-limit-hit: it crashed too often",
            f"opsctl resets the counter before its own start; look at opsctl logs {host} first",
        )
    burst, interval = unit.start_limit_burst, unit.start_limit_interval
    if unit.restart not in {"no", ""} and (not burst or interval == 0):
        return Finding(
            "start_limit",
            "warn",
            f"Restart={unit.restart} without a start limit: a crash loop never ends",
            "set StartLimitIntervalSec and StartLimitBurst in the unit",
        )
    within = "any time" if interval is None else f"{interval:.0f} s"
    return Finding("start_limit", "ok", f"at most {burst} starts in {within}")


def _timeouts(unit: Unit, service: Service) -> Iterator[Finding]:
    if unit.timeout_stop is None:
        yield Finding(
            "stop_timeout",
            "fail",
            "TimeoutStopSec is infinite, and SGLang's drain after SIGTERM has no bound",
            "set TimeoutStopSec=90 in the unit",
        )
    else:
        yield Finding("stop_timeout", "ok", f"SIGKILL follows after {unit.timeout_stop:.0f} s")
    start = unit.timeout_start
    if unit.type.startswith("notify") and start is not None and start < service.load.budget:
        yield Finding(
            "start_timeout",
            "fail",
            f"Type={unit.type} with TimeoutStartSec={start:.0f}: systemd would kill a load of "
            f"up to {service.load.budget:.0f} s",
            "use Type=exec, or TimeoutStartSec above the load budget",
        )


def _install(facts: Mapping[str, Any], service: Service, host: str) -> Iterator[Finding]:
    install = facts["install"]
    if "fault" in install:
        fault = install["fault"]
        yield Finding("install", "fail", fault["message"], fault["remedy"])
        return
    what = f"{service.distribution} {install['version']} in {install['package_dir']}"
    if install.get("editable"):
        yield Finding(
            "install",
            "fail",
            f"{what} is an editable install, whose RECORD lists none of its files",
            "install the release's wheel in that environment",
        )
    else:
        yield Finding("install", "ok", what)
    if "audit" in install:
        yield _record(install, facts["generation"], host)


def _record(install: Mapping[str, Any], generation: Mapping[str, Any] | None, host: str) -> Finding:
    audit = install["audit"]
    recorded = {
        path: file["sha256"] for path, file in (generation["files"] if generation else {}).items()
    }

    def explained(path: str) -> bool:
        now = install["files"].get(path, {}).get("sha256")
        return path in recorded and recorded[path] == now

    odd = {
        kind: [path for path in audit[kind] if not explained(path)]
        for kind in ("modified", "missing", "extra")
    }
    if not any(odd.values()):
        by_a_set = len(audit["modified"]) + len(audit["extra"])
        return Finding(
            "record",
            "ok",
            f"all files as the wheel's RECORD has them, {by_a_set} by a recorded set",
        )
    text = "; ".join(
        f"{kind}: {', '.join(paths[:5])}{' …' if len(paths) > 5 else ''}"
        for kind, paths in odd.items()
        if paths
    )
    ours = {*odd["modified"], *odd["missing"]} & set(recorded)
    number = generation["number"] if generation and ours else None
    return Finding(
        "record",
        "fail" if odd["modified"] or odd["missing"] else "warn",
        f"files differ from the wheel's RECORD and from the recorded generation: {text}",
        f"opsctl plan {host} shows the difference; {drift.remedy(host, number)}",
    )


def _patchset(unit: Unit, patchset: PatchSet | OpsctlError | None) -> Iterator[Finding]:
    if patchset is None:
        return
    if isinstance(patchset, OpsctlError):
        yield Finding("patch_set", "fail", patchset.message, patchset.remedy)
        return
    yield Finding("patch_set", "ok", f"{patchset.label} is for the installed version")
    unmet = patchset.needs.unmet(unit.argv) if unit.argv else []
    if unit.plain:
        yield Finding(
            "arguments",
            "warn",
            "not checked: it was started without speculation; a start by opsctl has them again",
            "opsctl restart",
        )
    elif unmet:
        yield Finding(
            "arguments",
            "fail",
            f"{patchset.label} needs of the unit's command line: {', '.join(unmet)}",
            "add them to ExecStart (launch.args in the inventory) and reload systemd",
        )


def _disk(facts: Mapping[str, Any]) -> Iterator[Finding]:
    for name, disk in facts["disk"].items():
        free = disk["free"]
        if not disk["writable"]:
            yield Finding(
                f"disk_{name}",
                "fail",
                f"{disk['path']} is not writable",
                "remount the file system read-write, or connect as a user who may write",
            )
        elif free < MIN_FREE_BYTES:
            yield Finding(
                f"space_{name}",
                "fail",
                f"{free >> 20} MiB free at {disk['path']}, below {MIN_FREE_BYTES >> 20}",
                "free some space on that file system",
            )
        else:
            yield Finding(f"disk_{name}", "ok", f"{free >> 20} MiB free at {disk['path']}")


def _port(facts: Mapping[str, Any], unit: Unit, service: Service) -> Iterator[Finding]:
    listener = facts["port"]
    where = f"{service.listen}:{service.port}"
    addresses = facts.get("own_addresses") or []
    if addresses and not {service.listen, "0.0.0.0"} & set(addresses):  # noqa: S104 - compared
        yield Finding(
            "port",
            "fail",
            f"the unit listens at {', '.join(addresses)}, not at {where}",
            "correct services.*.listen and port in the inventory",
        )
    elif listener is None:
        message = f"nothing listens at {where} (yet)"
        if unit.active:
            yield Finding("port", "warn", message, "while it loads that is as it should be")
        else:
            yield Finding("port", "ok", message)
    elif listener["own"]:
        yield Finding("port", "ok", f"{where} is the unit's own")
    else:
        pid = listener["pid"]
        who = "a process outside this container"
        if pid:
            who = f"pid {pid} ({redact(listener['command'])})"
        yield Finding(
            "port",
            "fail",
            f"port {service.port} is taken by {who}, which is not {service.unit}",
            f"stop it, or give the service another port; `ss -ltnp 'sport = {service.port}'`",
        )


def _leftovers(facts: Mapping[str, Any]) -> Iterator[Finding]:
    strays = facts["strays"]
    if strays:
        pids = ", ".join(str(stray["pid"]) for stray in strays)
        yield Finding(
            "leftovers",
            "fail",
            f"server processes outside the unit: {pids}; they may hold the port and GPU memory",
            f"look at them, then end them: kill {pids.replace(',', '')}",
        )
    gpu = facts["gpu"]
    if gpu is None:
        yield Finding(
            "gpu", "ok", "nvidia-smi is not there or does not answer: GPU memory was not looked at"
        )
        return
    foreign = [process for process in gpu if not process["own"]]
    if foreign:
        text = ", ".join(f"pid {p['pid']} {p['memory_mib'] or '?'} MiB" for p in foreign)
        yield Finding(
            "gpu",
            "warn",
            f"GPU memory is held outside the unit: {text}",
            "if they are left over from a killed server, end them",
        )
    else:
        yield Finding("gpu", "ok", "no GPU memory is held outside the unit")


def _state(facts: Mapping[str, Any], host: str) -> Iterator[Finding]:
    lock = facts["lock"]
    if lock:
        yield Finding(
            "lock",
            "fail",
            lock_text.describe(lock),
            f"wait for it to end: opsctl lock show {host}; --lock-wait 10m on deploy waits too",
        )
    else:
        yield Finding("lock", "ok", "free")
    fault = facts.get("state_fault")
    if fault:
        yield Finding("state", "fail", fault["message"], fault["remedy"])
        return
    if facts["swap"]:
        swap = facts["swap"]
        yield Finding(
            "swap",
            "fail",
            f"a swap from generation {swap['from']} to {swap['to']} was cut off: the files may "
            "be a mixture",
            f"opsctl rollback {host} finishes it",
        )
    generation = facts["generation"]
    if generation is None:
        yield Finding("generation", "ok", "no deploy is recorded on this host")
        return
    name = generation["set"]
    what = f"{name['name']} {name['version']}" if name else "no patch set"
    yield Finding("generation", "ok", f"generation {generation['number']}: {what}")
