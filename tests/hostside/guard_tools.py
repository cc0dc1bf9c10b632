"""A host with an armed guard: a scripted systemctl, a server that answers, real files."""

from __future__ import annotations

import http.server
import json
import time
from pathlib import Path
from typing import Any

from hostside_tools import Environment, put_tool

from opsctl.hostside import guard, probe
from opsctl.hostside.guardian import Guardian

NEW = b"VALUE = 'fixed'\n"


class Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


class Host:
    """A host whose last deploy put generation 1 over what was found; its unit is a file."""

    def __init__(self, env: Environment, port: int) -> None:
        self.env = env
        self.new = env.deploy({"a.py": NEW})
        self.site = env.site | {"port": port}
        self.said: list[str] = []
        put_tool(
            env.root / "bin",
            "systemctl",
            f"""\
case "$*" in
  show*opsctl-guard-*) cat {env.root}/loaded; exit ;;
  is-enabled*) cat {env.root}/enabled; exit ;;
esac
case "$1 $2" in
  show*) cat {env.root}/unit ;;
  daemon-reload*) printf 'LoadState=loaded\\nNeedDaemonReload=no\\n' > {env.root}/loaded ;;
  "-q enable") echo enabled > {env.root}/enabled ;;
  stop*) printf 'ActiveState=inactive\\nInvocationID=\\n' > {env.root}/unit ;;
  "--no-block start") printf 'ActiveState=active\\nSubState=running\\nInvocationID=i2\\n' \
    > {env.root}/unit ;;
esac
echo "$@" >> {env.root}/told
""",
        )
        (env.root / "loaded").write_text("LoadState=not-found\n")
        (env.root / "enabled").write_text("")
        self.unit("inactive")

    def unit(self, state: str, **properties: str) -> None:
        shown = {"ActiveState": state, "SubState": "running", "InvocationID": "i1", **properties}
        text = "".join(f"{key}={value}\n" for key, value in shown.items())
        (self.env.root / "unit").write_text(text)

    def arm(self, **changes: Any) -> None:
        terms = {
            "site": self.site,
            "boot_id": probe.boot_id(),
            "armed": time.time(),
            "deadline": time.monotonic() + 60,
            "within": 60.0,
            "to": 0,
            "target": self.new,
            "serving": True,
            "budget": 5.0,
            "token": "t",
            "who": "ann@laptop",
            "command": "deploy",
        }
        path = Path(self.env.state.path(guard.TERMS))
        path.write_text(json.dumps(terms | changes))

    def guard(self) -> int:
        return Guardian(self.env.state.root, self.said.append).run()

    @property
    def report(self) -> dict[str, Any]:
        found = guard.report(self.env.state)
        assert found is not None
        return found

    @property
    def told(self) -> list[str]:
        lines = (self.env.root / "told").read_text().splitlines()
        return [line for line in lines if not line.startswith("show")]

    def restored(self) -> bool:
        current = self.env.state.current()
        assert current is not None
        found = (self.env.package_dir / "a.py").read_bytes()
        assert (current["number"] == 0) == (found != NEW), "state and disk agree"
        return bool(current["number"] == 0)
