"""opsctl init against a host of facts: what it writes, where, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from opsctl import inventory, transport
from opsctl.cli.app import app
from opsctl.inventory import Ssh

UNIT = {
    "Id": "kimi.service",
    "ActiveState": "active",
    "settings": {},
    "arguments": ["--tp=8"],
    "running": None,
    "effective": ["--tp=8", "--model-path", "/m"],
    "via": "",
    "template": None,
    "environment": {},
    "secret_variables": [],
    "environment_files": [],
    "secrets": {},
    "model": "/m",
    "python": "/venv/bin/python",
    "distribution": "sglang",
    "install": {"version": "0.5.12.post1", "editable": False},
    "loads": [],
    "set": None,
}
FACTS: dict[str, Any] = {
    "host": {"hostname": "ct200.example.org"},
    "units": [UNIT],
    "looked_at": 80,
    "unclear": [],
    "containers": [],
    "user_units": [],
    "processes": [],
}
Opsctl = Callable[..., Any]


class Remote:
    """A connection that knows one answer."""

    where = "root@somewhere"

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts

    def call(self, op: str, **params: Any) -> Any:
        assert op == "discover"
        return self.facts


@pytest.fixture
def facts() -> dict[str, Any]:
    return dict(FACTS)


@pytest.fixture
def asked(facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[Ssh]:
    """Where it connected to, in turn."""
    found: list[Ssh] = []

    @contextmanager
    def connect(ssh: Ssh, python: str = "python3") -> Iterator[Remote]:
        found.append(ssh)
        yield Remote(facts)

    monkeypatch.setattr(transport, "connect", connect)
    return found


@pytest.fixture
def opsctl(asked: list[Ssh], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opsctl:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPSCTL_INVENTORY", raising=False)
    return lambda *argv: CliRunner().invoke(app, ["init", *argv])


@pytest.mark.parametrize(
    ("target", "ssh", "name"),
    [
        ("root@10.1.2.200:2200", Ssh(address="10.1.2.200", user="root", port=2200), "ct200"),
        ("fe80::1", Ssh(address="fe80::1"), "ct200"),
        ("box", Ssh(address="box"), "box"),
        ("ann@box.example.org", Ssh(address="box.example.org", user="ann"), "box.example.org"),
    ],
)
def test_where_it_looks_and_what_it_calls_it(
    target: str, ssh: Ssh, name: str, opsctl: Opsctl, asked: list[Ssh]
) -> None:
    done = opsctl(target)
    assert done.exit_code == 0, done.stderr
    assert asked == [ssh]
    book = inventory.load(Path("inventory.yaml"))
    assert list(book.hosts) == [name]
    assert book.hosts[name].ssh == ssh
    assert f"opsctl doctor {name}" in done.stdout


def test_stdout_has_it_and_no_file(opsctl: Opsctl, tmp_path: Path) -> None:
    done = opsctl("box", "--output", "-", "--name", "other")
    assert done.exit_code == 0
    (tmp_path / "x.yaml").write_text(done.stdout)
    assert list(inventory.load(tmp_path / "x.yaml").hosts) == ["other"]
    assert [path.name for path in tmp_path.iterdir()] == ["x.yaml"]


def test_a_file_that_is_there_stays_and_its_entry_is_shown(opsctl: Opsctl) -> None:
    path = Path("inventory.yaml")
    path.write_text("# mine\n")
    done = opsctl("box")
    assert done.exit_code == 3
    assert done.stdout.startswith("  box:\n    ssh:\n      address: box\n")
    assert "--add" in done.stderr
    assert path.read_text() == "# mine\n"


def test_a_host_is_added_to_the_named_inventory(opsctl: Opsctl, tmp_path: Path) -> None:
    assert opsctl("box").exit_code == 0
    Path("inventory.yaml").rename("book.yaml")
    Path("book.yaml").chmod(0o640)
    before = Path("book.yaml").read_text()
    done = opsctl("second", "--add", "--inventory", "book.yaml", "--json")
    assert json.loads(done.stdout)["data"]["services"] == [{"name": "kimi", "unit": UNIT["Id"]}]
    assert list(inventory.load(Path("book.yaml")).hosts) == ["box", "second"]
    assert Path("book.yaml").read_text().startswith(before)
    assert Path("book.yaml").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["book.yaml"]


def test_an_inventory_with_faults_is_not_added_to(opsctl: Opsctl) -> None:
    text = "version: 1\nhosts:\n  a:\n    lab: x\n    services: {}\n"
    Path("inventory.yaml").write_text(text)
    done = opsctl("box", "--add")
    assert done.exit_code == 2
    assert "services" in done.stderr
    assert Path("inventory.yaml").read_text() == text


def test_several_services_need_one_named(opsctl: Opsctl, facts: dict[str, Any]) -> None:
    facts["units"] = [UNIT, UNIT | {"Id": "second.service"}]
    assert "next: opsctl doctor box --service kimi" in " ".join(opsctl("box").stdout.split())


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("box", "-o", "-", "--add"), "--add needs a file"),
        (("box", "-o", "-", "--json"), "stdout is the report's"),
        (("box", "--add"), "no inventory.yaml to add to"),
        (("bo x",), "is no host to connect to"),
        (("box:99999",), "is no host to connect to"),
        (("box", "--name", "no name"), "cannot be a host's name"),
        (("box", "--ssh-config", "nowhere"), "no such file"),
        (("box", "-o", "no/such/folder.yaml"), "cannot write"),
    ],
)
def test_what_makes_no_sense_exits_2(argv: tuple[str, ...], said: str, opsctl: Opsctl) -> None:
    done = opsctl(*argv)
    assert done.exit_code == 2, done.output
    assert said in done.output
    assert "Traceback" not in done.output


def test_nothing_found_names_what_came_near(opsctl: Opsctl, facts: dict[str, Any]) -> None:
    facts.update(
        units=[],
        containers=["box.service"],
        processes=[{"pid": 7, "where": "outside any unit", "command": "python -m sglang"}],
    )
    done = opsctl("box")
    assert done.exit_code == 3
    assert "80 services were looked at" in done.stderr
    assert "process 7 outside any unit: python -m sglang" in done.stderr
    assert "box.service: it runs SGLang in a container" in done.stderr
    facts.update(containers=[], processes=[])
    assert "no process runs it" in opsctl("box").stderr
