"""triage against this machine as the host: what hangs, what is missing, and the bundle."""

from __future__ import annotations

import base64
import json
import socket
import stat
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hostside_tools import Environment, put_tool
from typer.testing import CliRunner

from opsctl.cli import context
from opsctl.cli.app import app
from opsctl.rollout import triaging
from opsctl.transport import local

pytest_plugins = ["hostside_fixtures"]

PLANT = "pLanTed5f3a9cZq"
READY = "[2026-11-30 03:00:00] The server is fired up and ready to roll!"
SHOWN = (
    "Id=serve.service\nLoadState=loaded\nActiveState=active\nSubState=running\nInvocationID=i1\n"
    "MainPID=1\nNRestarts=0\nResult=success\nActiveEnterTimestampMonotonic=1\n"
)


class Server(BaseHTTPRequestHandler):
    """A server that answers, with whatever /server_info has."""

    info: dict[str, Any] = {}  # noqa: RUF012 - the handler is made anew for each request

    def do_GET(self) -> None:
        answers = {"/v1/models": {"data": [{"id": "tiny"}]}, "/health": {}}
        answers["/server_info"] = self.info
        body = json.dumps(answers.get(self.path)).encode()
        self.send_response(200 if self.path in answers else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    found = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    Server.info = {"version": "0.5.12.post1"}
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def say(tools: Path, *messages: str) -> None:
    """The journal of the unit's present start."""
    lines = [
        json.dumps(
            {
                "MESSAGE": message,
                "_SYSTEMD_INVOCATION_ID": "i1",
                "_PID": "7",
                "__CURSOR": str(number),
                "__REALTIME_TIMESTAMP": str(1_800_000_000_000_000 + number),
            }
        )
        for number, message in enumerate(messages)
    ]
    (tools / "lines").write_text("\n".join(lines) + "\n")
    kernel = 'case "$*" in *kernel*) exit 0 ;; *DROPPED*|*MESSAGE_ID*) exit 0 ;; esac\n'
    put_tool(tools, "journalctl", f"{kernel}cat {tools}/lines\n")


def inventory_of(env: Environment, port: int, more: str = "") -> Path:
    (env.root / "model").mkdir(exist_ok=True)
    (env.root / "model" / "m.safetensors").write_bytes(b"0")
    path = env.root / "inventory.yaml"
    path.write_text(
        f"""\
version: 1
hosts:
  alpha:
    ssh: {{address: 192.0.2.1}}
    services:
      serve:
        unit: serve.service
        python: {env.python}
        distribution: demo-dist
        port: {port}
        endpoint: http://127.0.0.1:{port}
        model: {{path: {env.root / "model"}, served_name: m}}
        state_dir: {env.root / "state"}
{more}"""
    )
    return path


@pytest.fixture
def book(
    env: Environment, tools: Path, server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> Path:
    (env.root / "unit").write_text(SHOWN)
    say(tools, READY)
    monkeypatch.setattr(context, "_way_in", lambda host, service: (local, service))
    path = inventory_of(env, server.server_port)
    monkeypatch.setenv("OPSCTL_INVENTORY", str(path))
    return path


@pytest.fixture
def tight() -> None:
    """The bounds as they are."""


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine what does not hang may take its time; what hangs does so for a minute."""
    if "tight" not in request.fixturenames:
        monkeypatch.setattr(triaging, "_LEAST_ANSWERS", 40.0)
        monkeypatch.setattr(triaging, "_LEAST_CONNECT", 40.0)


TIGHT = 25  # seconds; 5 on a machine that has nothing else to do


def run(*words: str) -> tuple[int, dict[str, Any]]:
    shown = CliRunner().invoke(app, ["triage", "--json", *words])
    return shown.exit_code, json.loads(shown.stdout)


@pytest.mark.usefixtures("book")
def test_nothing_is_wrong() -> None:
    code, report = run()
    assert (code, report["verdict"]) == (0, "pass"), report
    assert report["data"]["cause"] is None
    assert report["data"]["http"] == {"state": "answers", "text": "serving tiny", "healthy": True}
    assert report["data"]["starts"][0]["ready_at"]
    page = CliRunner().invoke(app, ["triage"]).stdout
    assert "nothing is wrong" in page
    assert max(map(len, page.splitlines()[:-1])) <= 80


def _silent() -> socket.socket:
    """Accepts, by its backlog, and never answers."""
    return socket.create_server(("127.0.0.1", 0), backlog=16)


@pytest.mark.usefixtures("tight")
def test_a_server_that_accepts_and_never_answers(book: Path, env: Environment) -> None:
    with _silent() as silent:
        inventory_of(env, silent.getsockname()[1])
        began = time.monotonic()
        code, report = run()
        took = time.monotonic() - began
    cause = report["data"]["cause"]
    assert (code, cause["name"], cause["runbook"]) == (11, "hung", "hung")
    assert cause["command"] == "opsctl runbook run hung alpha"
    assert took < TIGHT


HANG = "exec sleep 60\n"


@pytest.mark.parametrize(
    ("hang", "missing"),
    [
        (lambda tools: put_tool(tools, "nvidia-smi", HANG), "gpus"),
        (lambda tools: put_tool(tools, "journalctl", HANG), "journal"),
        (lambda tools: put_tool(tools, "systemctl", HANG), "unit"),
    ],
    ids=["nvidia-smi", "journalctl", "systemctl"],
)
@pytest.mark.usefixtures("tight")
def test_what_hangs_is_named_and_the_rest_is_there(
    book: Path, tools: Path, hang: Callable[[Path], Path], missing: str
) -> None:
    hang(tools)
    began = time.monotonic()
    code, report = run()
    took = time.monotonic() - began
    assert took < TIGHT
    assert "no answer" in report["data"]["missing"][missing]
    assert report["data"]["machine"]["memory"]["total"] > 0
    assert report["data"]["http"]["state"] == "answers"
    # Without systemd nobody knows whether it runs; that it is ready /health says, too.
    assert code == {"unit": 12}.get(missing, 0), report["summary"]


@pytest.mark.usefixtures("tight")
def test_a_python_of_the_service_that_hangs(book: Path, env: Environment) -> None:
    """Its environment lies on a mount that is dead, say."""
    env.python.unlink()
    put_tool(env.python.parent, "python", HANG)
    began = time.monotonic()
    _, report = run()
    assert time.monotonic() - began < TIGHT
    assert "inspect" in report["data"]["missing"]
    assert report["data"]["unit"]["state"] == "active (running)"


@pytest.mark.parametrize("damage", ["current", "folder"])
def test_a_damaged_state_folder(book: Path, env: Environment, damage: str) -> None:
    folder = env.root / "state" / "serve"
    if damage == "folder":
        folder.parent.mkdir()
        folder.write_text("not a folder")
    else:
        env.deploy({"a.py": b"VALUE = 'fixed'\n"})
        (folder / "current").write_text("nonsense")
    code, report = run()
    assert report["data"]["unit"]["state"] == "active (running)"
    if damage == "current":
        assert (code, report["data"]["cause"]["name"]) == (11, "state_damaged")
    else:
        assert "inspect" in report["data"]["missing"]


def test_a_unit_that_does_not_exist(book: Path, env: Environment) -> None:
    (env.root / "unit").write_text("Id=serve.service\nLoadState=not-found\nActiveState=inactive\n")
    code, report = run()
    assert (code, report["data"]["cause"]["name"]) == (11, "no_unit")


def test_weights_that_are_not_there(book: Path, env: Environment, tools: Path) -> None:
    (env.root / "model" / "m.safetensors").unlink()
    (env.root / "unit").write_text(
        SHOWN.replace("ActiveState=active", "ActiveState=failed").replace("success", "exit-code")
    )
    code, report = run()
    assert (code, report["data"]["cause"]["name"]) == (11, "weights_missing")
    assert "is it mounted?" in report["data"]["cause"]["text"]


def test_a_journal_of_20_000_lines(book: Path, tools: Path) -> None:
    decode = (
        "[2026-11-30 03:00:01] Decode batch, #running-req: 1, #token: 9, token usage: 0.01, "
        "accept len: 3.00, accept rate: 0.5, cuda graph: True, gen throughput (token/s): 9.0, "
        "#queue-req: 0"
    )
    say(tools, READY, *[decode] * 20_000)
    real = (tools / "journalctl").read_text().splitlines()
    real[-1] = (
        f'case "$*" in *--grep*) head -1 {tools}/lines ;; *) tail -1500 {tools}/lines ;; esac'
    )
    (tools / "journalctl").write_text("\n".join(real) + "\n")
    code, report = run()
    assert code == 0, report["summary"]
    assert report["data"]["acceptance"]["accept_len"] == pytest.approx(3.0)
    assert report["data"]["acceptance"]["decode_lines"] == 1500


@pytest.mark.usefixtures("tight")
def test_a_host_that_never_answers(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> Any:
        time.sleep(60)

    monkeypatch.setattr(context, "_way_in", lambda host, service: (never, service))
    began = time.monotonic()
    code, report = run()
    assert time.monotonic() - began < TIGHT
    assert (code, report["reasons"][0]["code"]) == (5, "no_connection")


# -- the bundle ------------------------------------------------------------------------------------


def _plant(env: Environment, tools: Path, port: int) -> list[str]:
    """A secret of each sort in each place; all of them."""
    names = ["env", "cli", "journal", "prompt", "dropin", "server", "why", "hook", "url", "key"]
    planted = {name: f"{PLANT}{name}" for name in [*names, "environment", "file", "kernel"]}
    (env.root / "unit").write_text(
        SHOWN + f"Environment=HF_TOKEN={planted['env']} HARMLESS={planted['environment']}\n"
        f"ExecStart={{ path=/p ; argv[]=/p -m sglang --api-key {planted['cli']} ; ignore }}\n"
    )
    say(
        tools,
        READY,
        f"[2026-11-30 03:00:00] server_args=ServerArgs(api_key='{planted['key']}', x=1)",
        f"[2026-11-30 03:00:00] Receive: obj=GenerateReqInput(text='{planted['prompt']}",
        f"and more {planted['prompt']}')",
        f"[2026-11-30 03:00:01] proxy http://u:{planted['url']}@proxy.example.org refused",
        f"[2026-11-30 03:00:01] notify https://hooks.slack.com/services/T0/B0/{planted['hook']}",
        f"[2026-11-30 03:00:01] a word that only the inventory knows: {planted['file']}",
        f"[2026-11-30 03:00:02] Authorization: Bearer {planted['journal']}",
        f"[2026-11-30 03:00:02] seen {planted['env']} in passing",
    )
    (env.root / "key").write_text(planted["file"] + "\n")
    Server.info = {
        "api_key": planted["server"],
        "nested": [{"hf_token": planted["server"], "served": f"sk-{planted['server']}"}],
    }
    env.deploy({"a.py": b"VALUE = 'fixed'\n"})
    state = env.root / "state" / "serve"
    record = json.loads((state / "generations" / "1.json").read_text())
    record.update(why=f"for https://ann:{planted['why']}@git.example.org", argv=["--api-key", "x"])
    record["argv"] = [f"--api-key={planted['why']}"]
    (state / "generations" / "1.json").write_text(json.dumps(record))
    with (state / "audit.jsonl").open("a") as log:
        why = f"token=hf_{planted['why']}"
        log.write(json.dumps({"event": "stage", "time": 1.0, "why": why}) + "\n")
    more = f"""\
        api_key: {{file: {env.root / "key"}}}
        launch:
          environment: {{SOME_TOKEN: {planted["env"]}inv, PLAIN: {planted["environment"]}}}
          args: [--api-key={planted["cli"]}]
          drop_ins:
            10-x.conf: |
              [Service]
              Environment=WEBHOOK=https://x.example.org/{planted["dropin"]}
"""
    inventory_of(env, port, more)
    return list(planted.values())


def test_no_secret_is_in_the_bundle(
    book: Path,
    env: Environment,
    tools: Path,
    server: ThreadingHTTPServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planted = _plant(env, tools, server.server_port)
    collect = triaging.collect

    def with_files(*given: Any, **more: Any) -> Any:
        """The unit's own files and the kernel's messages, which are not on this machine."""
        answers, missing = collect(*given, **more)
        text = f"[Service]\nEnvironment=A={PLANT}env \\\n  B={PLANT}environment\n"
        text += f"ExecStart=/p --api-key {PLANT}cli\n"
        files = {"/etc/systemd/system/serve.service": base64.b64encode(text.encode()).decode()}
        answers["inspect"]["unit_files"] = {"folder": "/etc", "files": files}
        lines = [{"time": 1.0, "text": f"NVRM: Xid 79 Bearer {PLANT}kernel"}]
        answers["machine"]["kernel"] = {"source": "journal", "since": 0.0, "lines": lines}
        return answers, missing

    monkeypatch.setattr(triaging, "collect", with_files)
    target = tmp_path / "report.tar.gz"
    _, report = run("--bundle", str(target))
    assert report["data"]["bundle"]["file"] == str(target)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with tarfile.open(target) as archive:
        assert all(member.mode == 0o600 for member in archive.getmembers())
        texts = {
            member.name.partition("/")[2]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }
    assert set(texts) == {
        *("MANIFEST.txt", "triage.json", "triage.txt", "journal.txt", "unit/properties.json"),
        *("inventory.json", "generations.json", "audit.jsonl", "server_info.json", "kernel.txt"),
        *("versions.json", "unit/etc/systemd/system/serve.service"),
    }
    for name, text in texts.items():
        for secret in planted:
            assert secret not in text, f"{secret} in {name}"
        assert PLANT not in text, name
    assert "The server is fired up" in texts["journal.txt"], "and what is needed is there"
    assert json.loads(texts["generations.json"])[1]["number"] == 1
    manifest = texts["MANIFEST.txt"]
    assert all(name in manifest for name in texts if name != "MANIFEST.txt")
    assert "metrics: " in manifest, "and what is not there is named"
    assert "webhook URLs" in manifest


def test_the_bundle_in_a_folder_gets_a_name(book: Path, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    _, report = run("--bundle", str(tmp_path / "reports"))
    (made,) = (tmp_path / "reports").iterdir()
    assert report["data"]["bundle"]["file"] == str(made)
    assert made.name.startswith("opsctl-triage-alpha-")


@pytest.mark.parametrize("where", ["missing/x.tar.gz", "file/x.tar.gz"])
def test_a_bundle_that_cannot_be_written(book: Path, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("")
    code, report = run("--bundle", str(tmp_path / where))
    assert (code, report["verdict"]) == (2, "error")
    assert not list(tmp_path.rglob("*.gz*"))
