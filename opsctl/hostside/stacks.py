"""Where the processes of a unit hang: what is left to see before a restart wipes it away."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from . import probe
from . import unit as units
from .errors import HostFault
from .tools import run

_EACH = 10.0  # seconds for one py-spy
_TEXT = 6000  # characters of one stack


def stacks(site: Dict[str, Any]) -> Dict[str, Any]:
    """{processes: [{pid, name, state, wchan, kernel, python}], py_spy}.

    `state` is proc_pid_stat(5)'s (D hangs in the kernel, R runs); `wchan` and `kernel` are where in
    the kernel, where that may be seen; `python` is the stack by py-spy, which is used where the
    host has it and is None elsewhere.
    """
    cgroup = str(units.show(site["unit"]).get("ControlGroup") or "")
    tool = _py_spy(site["python"])
    found: List[Dict[str, Any]] = []
    for pid in probe.members(cgroup):
        words = probe.argv(pid)
        found.append(
            {
                "pid": pid,
                "name": (words[0] if words else "")[:100],
                "state": probe.state(pid),
                "wchan": probe.text("/proc/%d/wchan" % pid).strip(),
                "kernel": probe.text("/proc/%d/stack" % pid).strip()[:_TEXT],
                "python": _python(tool, pid),
            }
        )
    return {"processes": found, "py_spy": tool}


def _py_spy(python: str) -> Optional[str]:
    folders = [os.path.dirname(python), *os.environ.get("PATH", os.defpath).split(os.pathsep)]
    tools = (os.path.join(folder, "py-spy") for folder in folders)
    return next((tool for tool in tools if os.access(tool, os.X_OK)), None)


def _python(tool: Optional[str], pid: int) -> Optional[str]:
    if tool is None:
        return None
    try:
        done = run([tool, "dump", "--nonblocking", "--pid", str(pid)], timeout=_EACH)
    except HostFault as fault:
        return fault.message
    return (done.stdout or done.stderr).strip()[:_TEXT]
