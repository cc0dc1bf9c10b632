"""The incident, and the kernels by themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from lab import HERE, Found, Lab
from servers import running

INCIDENT = "The size of tensor a (8) must match the size of tensor b (33)"


def incident(lab: Lab, found: Found) -> None:
    """The series without its CUDA-graph patch must die with the incident's own message."""
    site = lab.arguments.without_graph
    if site is None:
        raise ValueError("the incident needs --without-graph")
    server = lab.server("32", lab.small, label="-incident", site=site)
    lab.say("starting the series without its graph patch")
    with running([server], timeout=lab.arguments.start_timeout):
        found["died"] = server.dead()
    lines = [line for line in server.text().splitlines() if INCIDENT in line]
    found["message"] = lines[0].strip() if lines else None
    if not lines:
        found["log"] = server.text().splitlines()[-25:]
    lab.say(f"died: {found['died']}, {found['message']}")


def kernels(lab: Lab, found: Found) -> None:
    """kernels.py in a process of its own: its memory is back before servers start."""
    report, log = lab.work / "kernels.json", lab.work / "kernels.log"
    report.unlink(missing_ok=True)
    environment = dict(os.environ)
    environment["PYTHONPATH"] = f"{lab.arguments.whole}:{environment.get('PYTHONPATH', '')}"
    argv = [sys.executable, str(HERE / "kernels.py"), "--json", str(report)]
    argv += ["--cases", str(lab.arguments.kernel_cases)]
    lab.say(f"kernels: {lab.arguments.kernel_cases} random cases, then times")
    with log.open("wb") as out:
        subprocess.run(
            argv, stdout=out, stderr=out, env=environment, timeout=lab.arguments.kernel_timeout,
            check=False,
        )  # fmt: skip
    if not report.exists():
        tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
        raise RuntimeError("kernels.py wrote no report:\n" + "\n".join(tail))
    report_found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    found.update(report_found)
    lab.say(f"kernels: {len(found['failures'])} of {found['cases']} cases differ")
