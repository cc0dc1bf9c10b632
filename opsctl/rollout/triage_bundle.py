"""`opsctl triage --bundle`: the triage, and what it stands on, for a bug report."""

from __future__ import annotations

import base64
import contextlib
import json
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import opsctl
from opsctl.errors import UsageError
from opsctl.report import Report
from opsctl.rollout import triaging
from opsctl.rollout.session import Session
from opsctl.triage import bundle, judge, page
from opsctl.triage.scrub import Scrubber

# Journal lines of the unit, and entries of the host's log.
_LINES, _LOG = 5000, 1000
# Seconds for what the triage itself did not ask.
_PATIENCE = 30.0

_ABOUT = {
    "triage.json": "the report, as --json prints it",
    "triage.txt": "the page",
    "journal.txt": f"the unit's last {_LINES} lines: Unix time, program, text",
    "unit/properties.json": "what systemd says of the unit",
    "inventory.json": "the service's entry in the inventory; secrets are references there",
    "generations.json": "the host's records of what was deployed",
    "audit.jsonl": "the host's log",
    "server_info.json": "/server_info",
    "metrics.json": "/metrics, SGLang's own figures",
    "kernel.txt": "the kernel's telling messages of the last day",
    "versions.json": "opsctl, Python and the host's programs",
}


def bundled(session: Session, target: Path) -> Report:
    """A triage whose report has `data.bundle`: {file, files, hidden}; `target` is the archive's
    file, or a folder for one whose name is chosen.

    Raises:
        UsageError: it cannot be written there.
        Unreachable: there is no connection.
    """
    began = time.time()
    path = _path(target, session, began)
    answers, missing = triaging.collect(session, patience=_PATIENCE / 3)
    facts = triaging.facts_of(session, answers, missing)
    report = triaging.report_of(session, facts, answers, judge(facts), began)
    scrubber = Scrubber(_known(session, answers))
    files, absent = _files(session, answers, report, scrubber)
    about = {name: _ABOUT.get(name, "a file of the unit") for name in files}
    what = f"{session.host.name}, {session.service.name}: {report.verdict}"
    files["MANIFEST.txt"] = bundle.manifest(
        what, began, files, about=about, hidden=scrubber.hidden, absent=absent
    )
    bundle.write(path, path.name.split(".")[0], files, began)
    told = {"file": str(path), "files": sorted(files), "hidden": dict(scrubber.hidden)}
    return report.model_copy(update={"data": {**report.data, "bundle": told}})


def _path(target: Path, session: Session, at: float) -> Path:
    """Checked before anything is asked."""
    if target.is_dir():
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(at))
        target = target / f"opsctl-triage-{session.host.name}-{stamp}.tar.gz"
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent}: no such folder", remedy="make it, or name another")
    return target


def _known(session: Session, answers: triaging.Answers) -> list[str]:
    """Secrets whose text is known here: the API key, and what the unit's environment has."""
    found = []
    reference = session.service.api_key
    if reference is not None:
        with contextlib.suppress(LookupError):
            found.append(reference.read())
    shown = answers.get("unit") or {}
    pairs = re.findall(r"(\w+)=([^\s\"']+)", str(shown.get("Environment") or ""))
    for name, value in [*pairs, *session.service.launch.environment.items()]:
        if re.search(r"(?i)key|token|secret|passw|cred|webhook", name):
            found.append(value)
    return found


def _files(
    session: Session, answers: triaging.Answers, report: Report, scrubber: Scrubber
) -> tuple[dict[str, str], dict[str, str]]:
    host: Mapping[str, Any] = answers.get("inspect") or {}
    properties = answers.get("unit") or host.get("unit") or {}
    kernel = (answers.get("machine") or {}).get("kernel") or {}
    asked, absent = _asked(session)
    dumped = scrubber.value(report.dump())
    shown = page.text(page.rows(report.data, report.summary))
    files = {
        "triage.json": _json(dumped),
        "triage.txt": scrubber.line(shown),
        "unit/properties.json": _json(_properties(properties, scrubber)),
        "inventory.json": _json(_inventory(session, scrubber)),
        "versions.json": _json(_versions(host)),
    }
    for path, data in ((host.get("unit_files") or {}).get("files") or {}).items():
        text = base64.b64decode(data).decode("utf-8", "replace")
        files["unit" + path] = scrubber.unit(text)
    if "lines" in kernel:
        lines = [f"{each['time']:.3f} {each['text']}" for each in kernel["lines"]]
        files["kernel.txt"] = scrubber.line("\n".join(lines) + "\n")
    if "journal" in asked:
        files["journal.txt"] = "\n".join(scrubber.journal(asked["journal"])) + "\n"
    for name in ("generations", "server_info", "metrics"):
        if name in asked:
            files[f"{name}.json"] = _json(scrubber.value(asked[name]))
    if "audit" in asked:
        entries = [json.dumps(scrubber.value(each)) for each in asked["audit"]]
        files["audit.jsonl"] = "\n".join(entries) + "\n"
    return files, {**report.data["missing"], **absent}


def _asked(session: Session) -> tuple[Mapping[str, Any], dict[str, str]]:
    """What only a bundle has."""

    def server(method: str) -> Any:
        with session.client() as client:
            return getattr(client, method)()

    looks: dict[str, Callable[[], Any]] = {
        "journal": lambda: session.read("", _LINES, timeout=_PATIENCE).entries,
        "generations": lambda: session.call("generations", damaged=True),
        "audit": lambda: session.call("audit_log", last=_LOG),
        "server_info": lambda: server("server_info"),
        "metrics": lambda: server("metrics"),
    }

    return triaging.gather(looks, _PATIENCE)


def _properties(properties: Mapping[str, Any], scrubber: Scrubber) -> dict[str, Any]:
    shown = dict(properties)
    shown["Environment"] = scrubber.variables(str(shown.get("Environment") or ""))
    return {name: scrubber.value(value, name) for name, value in shown.items()}


def _inventory(session: Session, scrubber: Scrubber) -> dict[str, Any]:
    entry = session.service.model_dump(mode="json")
    reference, launch = entry.pop("api_key"), entry["launch"]
    launch["environment"] = dict.fromkeys(launch["environment"], "[redacted]")
    launch["drop_ins"] = {name: scrubber.unit(text) for name, text in launch["drop_ins"].items()}
    launch["args"] = scrubber.line(" ".join(launch["args"])).split()
    found: dict[str, Any] = scrubber.value(entry)
    # Whether there is one and of which sort; even the name of its file says too much.
    found["api_key_reference"] = next((k for k, v in (reference or {}).items() if v), None)
    return found


def _versions(host: Mapping[str, Any]) -> dict[str, Any]:
    install = host.get("install") or {}
    return {
        "opsctl": opsctl.__version__,
        "python": sys.version,
        "platform": platform.platform(),
        "host": host.get("host"),
        "sglang": {key: install.get(key) for key in ("version", "python_version", "installer")},
    }


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, default=str) + "\n"
