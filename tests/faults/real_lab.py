"""The lab with SGLang itself, as the cases take the light one: two versions, 0 the wheel's own
files and 1 this repository's ddtree set on them."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml
from light_lab import PORT, Client, LightLab, Mixture
from light_package import HERE

from opsctl import lab, resources
from opsctl.inventory.models import Service


class RealLab(LightLab):
    """Which version a running SGLang has imported it does not tell: `whole` takes the disk's."""

    name_of_service, unit = "sglang-k26-ddtree", "sglang-k26-ddtree.service"
    slower = 300.0
    state = f"/var/lib/opsctl/{name_of_service}"
    site = "/opt/sglang/lib/python3.11/site-packages"

    def __init__(self, name: str, folder: Path, budget: float = 90.0) -> None:
        super().__init__(name, folder)
        source = yaml.safe_load(resources.bundled("inventory.yaml").read_text(encoding="utf-8"))
        self.service = source["hosts"]["ct200-lab"]["services"][self.name_of_service]
        self.service["load"] = {"budget": budget, "stall": budget}
        self._versions: list[dict[str, str]] = []

    def up(self) -> None:
        lab.down(self.name)
        service = Service.model_validate(self.service)
        service._name = self.name_of_service
        self.address = lab.up(self.name, service).address
        for name in ("fault_look.py", "fault_trap.py"):
            argv = lab.ssh_argv(self.name, f"mkdir -p /opt/faults; cat > /opt/faults/{name}")
            text = (HERE / name).read_bytes()
            subprocess.run(argv, input=text, check=True, capture_output=True, timeout=60)
        self.await_serving(240)
        found = self.look()
        self.beside = tuple(found["beside"])
        client = self.start("plan")
        client.finish(120)
        assert client.report is not None, client.stderr
        after = dict(found["files"])
        for file in client.report["data"]["plan"]["files"]:
            after[file["path"]] = file["after_sha256"]
        self._versions = [found["files"], after]

    def make_old(self) -> None:
        """What the case before left may be the version that the next one is to deploy."""
        if self.await_serving(180) == 1:
            client = self.start("rollback", "0", "--yes")
            assert client.finish(300) in (0, 12), client.stderr

    def deploy(self, version: int, **how: Any) -> Client:
        assert version == 1
        return self.start("deploy", "--yes", **how)

    def set_load(self, seconds: float) -> None:
        """SGLang takes the time that it takes."""

    def served(self, timeout: float = 2.0) -> dict[str, int] | None:
        connection = http.client.HTTPConnection(self.address, PORT, timeout=max(timeout, 2.0))
        try:
            connection.request("GET", "/v1/models")
            return {"models": 0} if connection.getresponse().status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def whole(self, versions: dict[str, int]) -> int:
        found = self.version_of(self.look()["files"]) if self._versions else 0
        if found is None:
            raise Mixture("the files on disk are of no one version")
        return found

    def seen(self, versions: dict[str, int]) -> int:
        return 0

    def version_of(self, files: dict[str, str]) -> int | None:
        return next((v for v, known in enumerate(self._versions) if known == files), None)

    def await_serving(self, timeout: float) -> int:
        """Until it completes a chat: it answers before it is warm."""
        deadline = time.monotonic() + max(timeout, 180)
        while time.monotonic() < deadline:
            if self.served() is not None and self.chats():
                return self.whole({})
            time.sleep(1)
        raise RuntimeError("SGLang does not answer")

    def chats(self) -> bool:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "Write quicksort."}]}
        connection = http.client.HTTPConnection(self.address, PORT, timeout=60)
        try:
            connection.request(
                "POST",
                "/v1/chat/completions",
                json.dumps(body | {"max_tokens": 16}),
                {"Content-Type": "application/json"},
            )
            answer = json.loads(connection.getresponse().read())
            return bool(answer["choices"][0]["message"]["content"])
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return False
        finally:
            connection.close()
