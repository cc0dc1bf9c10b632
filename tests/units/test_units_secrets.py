"""The file of secret variables, and that nothing but the file has their values."""

from __future__ import annotations

import base64
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl import resources
from opsctl.errors import UsageError
from opsctl.hostside import unitfiles
from opsctl.inventory.models import Service
from opsctl.patchset import sha256
from opsctl.rollout import unitplan
from opsctl.units import secrets
from opsctl.units.template import render_files, render_unit

TEMPLATES = resources.bundled("unit-templates")
PATH = "/etc/systemd/system/serve.service.d/opsctl-secrets.env"


def service(**launch: Any) -> Service:
    fields = {
        "unit": "serve.service",
        "python": "/p",
        "port": 1,
        "model": {"path": "/m", "served_name": "n"},
        "launch": launch,
    }
    found = Service.model_validate(fields)
    found._name = "serve"
    return found


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1))
def test_any_line_of_text_comes_back(value: str) -> None:
    """By a shell's rules, which those of EnvironmentFile= follow within double quotes."""
    text = secrets._lines({"A": value})
    assert shlex.split(text.replace("\\$", "$").replace("\\`", "`")) == [f"A={value}"]


def test_a_file_of_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("two words\n", encoding="utf-8")
    monkeypatch.setenv("ONE", 'a"b$c')
    made = service(secrets={"Z_KEY": {"file": str(tmp_path / "key")}, "A_KEY": {"env": "ONE"}})
    text = secrets.render(made) or ""
    assert text.splitlines()[1:] == ['A_KEY="a\\"b\\$c"', 'Z_KEY="two words"']
    shown = secrets.shown(made)
    assert "A_KEY=[redacted, from env ONE]" in shown
    assert "two words" not in shown
    assert f"EnvironmentFile={PATH}" in render_unit(made, TEMPLATES)
    assert not [text for text in render_files(made, TEMPLATES).values() if "two words" in text]


def test_none_are_no_file() -> None:
    assert secrets.render(service()) is None
    assert "EnvironmentFile" not in render_unit(service(), TEMPLATES)


def test_a_file_of_the_hosts_own() -> None:
    unit = render_unit(service(environment_file="/etc/50%/x y"), TEMPLATES)
    assert "EnvironmentFile=/etc/50%%/x y\n" in unit


@pytest.mark.parametrize("value", ["", None])
def test_a_reference_that_leads_nowhere(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONE", raising=False)
    if value is not None:
        monkeypatch.setenv("ONE", value)
    with pytest.raises(UsageError, match=r"launch\.secrets\.A_KEY of serve: .*ONE") as caught:
        secrets.render(service(secrets={"A_KEY": {"env": "ONE"}}))
    assert caught.value.code == "secret_missing"


def test_a_value_of_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "abc\nLD_PRELOAD=x")
    with pytest.raises(UsageError, match="control character") as caught:
        secrets.render(service(secrets={"A_KEY": {"env": "ONE"}}))
    assert "abc" not in caught.value.message


def facts(there: str | None, recorded: bool = False) -> dict[str, Any]:
    unit = {PATH: {"sha256": there, "before_sha256": None}} if recorded else {}
    files = {
        path: base64.b64encode(text.encode()).decode()
        for path, text in render_files(service(), TEMPLATES).items()
    }
    return {
        "unit_files": {"folder": unitfiles.FOLDER, "files": files, "secrets": there},
        "generation": {"number": 1, "unit": unit},
    }


def test_a_change_shows_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "s3cret")
    made = service(secrets={"A_KEY": {"env": "ONE"}})
    digest = sha256((secrets.render(made) or "").encode())
    change = next(c for c in unitplan.compare(made, facts(None), TEMPLATES) if c.path == PATH)
    assert change.after is not None
    assert b"s3cret" in change.after
    told = f"{change.diff}{change.to_json()}"
    assert "+A_KEY=[redacted, from env ONE]" in change.diff
    assert not [text for text in ("s3cret", str(digest)) if text in told]
    same = unitplan.compare(made, facts(digest), TEMPLATES)
    assert PATH not in [c.path for c in same]


def test_what_the_inventory_drops_goes() -> None:
    (change,) = unitplan.compare(service(), facts("0" * 64, recorded=True), TEMPLATES)
    assert (change.path, change.after) == (PATH, None)
    assert unitplan.compare(service(), facts("0" * 64), TEMPLATES) == (), "another's is left alone"


def test_unread_they_are_left_out_of_a_mere_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONE", raising=False)
    made = service(secrets={"A_KEY": {"env": "ONE"}})
    paths = [c.path for c in unitplan.compare(made, facts(None), TEMPLATES, needed=False)]
    assert PATH not in paths
    with pytest.raises(UsageError):
        unitplan.compare(made, facts(None), TEMPLATES)
