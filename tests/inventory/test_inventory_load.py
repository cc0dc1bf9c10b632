"""Reading inventory.yaml: every fault by file, line and key, and which file, host and service."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from opsctl import resources
from opsctl.errors import EXIT_USAGE, InventoryError, UsageError
from opsctl.inventory import ENVIRONMENT, Inventory, find, load, select

REPOSITORY = Path(__file__).resolve().parents[2]
CASES: list[dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "data" / "faults.yaml").read_text(encoding="utf-8")
)
GOOD = textwrap.dedent("""\
    version: 1
    defaults:
      host: alpha
    hosts:
      alpha:
        ssh:
          address: 192.0.2.1
        services:
          serve:
            unit: serve.service
            python: /opt/venv/bin/python
            port: 30001
            model:
              path: /models/m
              served_name: m
            load:
              budget: 15m
    """)
SECRET = "sk-do-not-print-me"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "inventory.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def fault(path: Path) -> InventoryError:
    with pytest.raises(InventoryError) as caught:
        load(path)
    assert caught.value.exit_code == EXIT_USAGE
    assert caught.value.remedy
    return caught.value


def edited(case: dict[str, Any]) -> str:
    if "text" in case:
        return str(case["text"])
    text = GOOD
    for key in ("edit", "edit_2", "edit_3"):
        if key in case:
            before, after = case[key]
            assert text.count(before) == 1, f"{before!r} is not once in the good inventory"
            text = text.replace(before, after)
    return text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_fault_names_file_line_and_key(tmp_path: Path, case: dict[str, Any]) -> None:
    path = write(tmp_path, edited(case))
    expected = [
        f"{path}:{text}" if text[0].isdigit() else f"{path}: {text}" for text in case["faults"]
    ]
    assert fault(path).message.splitlines() == expected


def test_the_good_inventory_is_good(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    inventory = load(path)
    assert inventory.path == path
    host = inventory.hosts["alpha"]
    service = host.services["serve"]
    assert (host.name, service.name) == ("alpha", "serve")
    assert service.load.budget == 900.0
    assert service.connect_host == "127.0.0.1"


def test_what_is_not_utf_8_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_bytes(GOOD.replace("alpha", "alphä").encode("latin-1"))
    message = fault(path).message
    assert message.startswith(f"{path}: cannot be read: ")
    assert "utf-8" in message


def test_a_folder_and_a_file_that_is_gone_cannot_be_read(tmp_path: Path) -> None:
    assert fault(tmp_path).message.startswith(f"{tmp_path}: cannot be read: ")
    assert "No such file" in fault(tmp_path / "gone.yaml").message


@pytest.mark.parametrize(
    "api_key",
    [
        SECRET,
        f"[{SECRET}]",
        f"{{env: {SECRET}, value: {SECRET}}}",
        f"{{value: {SECRET}}}",
        f"{{env: [{SECRET}]}}",
    ],
)
def test_a_secret_put_there_by_mistake_is_not_repeated(tmp_path: Path, api_key: str) -> None:
    text = GOOD.replace("        load:", f"        api_key: {api_key}\n        load:")
    error = fault(write(tmp_path, text))
    assert f"{tmp_path}/inventory.yaml:16: hosts.alpha.services.serve.api_key" in error.message
    assert SECRET not in error.message + error.remedy + repr(error)
    assert error.__cause__ is None
    assert error.__suppress_context__  # --debug prints no pydantic error, which has the input


@pytest.mark.parametrize("source", ["env", "file"])
def test_a_secret_that_was_read_is_in_no_repr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setenv("SERVE_KEY", SECRET)
    (tmp_path / "key").write_text(SECRET + "\n")
    reference = {"env": "SERVE_KEY", "file": str(tmp_path / "key")}[source]
    text = GOOD.replace(
        "        load:", f"        api_key: {{{source}: {reference}}}\n        load:"
    )
    inventory = load(write(tmp_path, text))
    key = inventory.hosts["alpha"].services["serve"].api_key
    assert key is not None
    assert key.read() == SECRET
    assert SECRET not in repr(inventory) + inventory.model_dump_json()


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("{env: SERVE_KEY}", "the environment variable SERVE_KEY is not set"),
        ("{file: /nonexistent/key}", "cannot read /nonexistent/key: No such file or directory"),
    ],
)
def test_a_secret_that_is_not_there_is_named_by_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str, said: str
) -> None:
    monkeypatch.delenv("SERVE_KEY", raising=False)
    text = GOOD.replace("        load:", f"        api_key: {reference}\n        load:")
    key = load(write(tmp_path, text)).hosts["alpha"].services["serve"].api_key
    assert key is not None
    with pytest.raises(LookupError) as caught:
        key.read()
    assert str(caught.value) == said


def test_a_secret_file_of_other_bytes_is_named_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe" + SECRET.encode())
    text = GOOD.replace(
        "        load:", f"        api_key: {{file: {tmp_path}/key}}\n        load:"
    )
    key = load(write(tmp_path, text)).hosts["alpha"].services["serve"].api_key
    assert key is not None
    with pytest.raises(LookupError, match=r"cannot read .*/key: it is not UTF-8 text") as caught:
        key.read()
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__


def test_the_repositorys_own_inventory_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPSCTL_HOST", raising=False)
    inventory = load(REPOSITORY / "inventory.yaml")
    host, service = select(inventory)
    assert (host.name, host.lab, service.name) == ("ct200-lab", "ct200-lab", "sglang-k26-ddtree")
    host, service = select(inventory, "ct200")
    assert host.ssh is not None
    assert (host.ssh.address, host.ssh.user) == ("10.1.2.200", "root")
    assert (service.port, service.load.budget, service.patch_set) == (30001, 900.0, "ddtree")


def test_a_default_may_be_a_host_without_an_entry(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(
        "version: 1\ndefaults:\n  host: mine\nhosts:\n  alpha:\n    lab: x\n    services:\n"
        "      s: {unit: s.service, python: /p, port: 1, model: {path: /m, served_name: m}}\n"
    )
    assert load(path, lambda name: name == "mine").defaults.host == "mine"
    with pytest.raises(InventoryError) as caught:
        load(path, lambda name: False)
    assert f"{path}:3: defaults.host: no host is called 'mine', and no lab" in caught.value.message


# -- select ----------------------------------------------------------------------------------


def book(hosts: dict[str, list[str]], default: str | None = None) -> Inventory:
    service = {
        "unit": "a.service",
        "python": "/p",
        "port": 1,
        "model": {"path": "/m", "served_name": "m"},
    }
    return Inventory.model_validate(
        {
            "version": 1,
            "defaults": {"host": default},
            "hosts": {
                name: {"lab": "x", "services": dict.fromkeys(services, service)}
                for name, services in hosts.items()
            },
        }
    )


TWO = {"a": ["s"], "b": ["s", "t"]}


@pytest.mark.parametrize(
    ("hosts", "default", "environment", "host", "service", "expected"),
    [
        ({"a": ["s"]}, None, None, None, None, ("a", "s")),
        (TWO, "a", None, None, None, ("a", "s")),
        (TWO, "b", None, "a", None, ("a", "s")),
        (TWO, "b", "a", None, None, ("a", "s")),
        (TWO, "a", "a", "b", "t", ("b", "t")),
        (TWO, "a", "", None, None, ("a", "s")),
        (TWO, None, None, None, None, "which host? There are a, b"),
        (TWO, None, None, "b", None, "which service on b? There are s, t"),
        (TWO, None, None, "c", None, "no host is called 'c' in the inventory; there are a, b"),
        (TWO, "a", "c", None, None, "no host is called 'c' in the inventory; there are a, b"),
        (
            TWO,
            None,
            None,
            "b",
            "u",
            "no service on b is called 'u' in the inventory; there are s, t",
        ),
        (
            {"ct200": ["s"], "ct201-lab": ["s"]},
            None,
            None,
            "ct200-lab",
            None,
            "no host is called 'ct200-lab' in the inventory; there are ct200, ct201-lab; "
            "did you mean 'ct201-lab'?",
        ),
    ],
)
def test_select(
    monkeypatch: pytest.MonkeyPatch,
    hosts: dict[str, list[str]],
    default: str | None,
    environment: str | None,
    host: str | None,
    service: str | None,
    expected: tuple[str, str] | str,
) -> None:
    monkeypatch.delenv("OPSCTL_HOST", raising=False)
    if environment is not None:
        monkeypatch.setenv("OPSCTL_HOST", environment)
    if isinstance(expected, str):
        with pytest.raises(UsageError) as caught:
            select(book(hosts, default), host, service)
        assert caught.value.message == expected
        assert "--host" in caught.value.remedy or "--service" in caught.value.remedy
        return
    found, which = select(book(hosts, default), host, service)
    assert (found.name, which.name) == expected


# -- find ------------------------------------------------------------------------------------


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """An inventory in every place that is looked at; the test takes away the better ones."""
    found = {
        "explicit": tmp_path / "explicit.yaml",
        "environment": tmp_path / "environment.yaml",
        "here": tmp_path / "a" / "b" / "inventory.yaml",
        "above": tmp_path / "a" / "inventory.yaml",
        "configured": tmp_path / "config" / "opsctl" / "inventory.yaml",
    }
    for path in found.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(GOOD)
    monkeypatch.setenv(ENVIRONMENT, str(found["environment"]))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return found


def test_find_takes_the_nearest(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    start = places["here"].parent
    assert find(places["explicit"], start) == places["explicit"]
    assert find(None, start) == places["environment"]
    monkeypatch.delenv(ENVIRONMENT)
    assert find(None, start) == places["here"]
    places["here"].unlink()
    assert find(None, start) == places["above"]
    monkeypatch.chdir(start)
    assert find() == places["above"]
    places["above"].unlink()
    assert find(None, start) == places["configured"]
    places["configured"].unlink()
    assert find(None, start) == resources.bundled("inventory.yaml") == REPOSITORY / "inventory.yaml"


def test_a_named_file_that_is_not_there_is_not_passed_over(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = places["explicit"].with_name("gone.yaml")
    for explicit, variable in ((gone, None), (None, gone)):
        if variable is not None:
            monkeypatch.setenv(ENVIRONMENT, str(variable))
        with pytest.raises(InventoryError) as caught:
            find(explicit, places["here"].parent)
        assert caught.value.message == f"{gone}: no such inventory file"
        assert caught.value.code == "inventory_missing"
