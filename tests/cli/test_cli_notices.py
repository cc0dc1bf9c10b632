"""`opsctl notices test`, with receivers that nobody is behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli_tools import INVENTORY, invoker

from opsctl.notices import Courier
from opsctl.notices.sender import post
from opsctl.rollout import notifying

SECRET = "x7s3cr3t"
CLOSED = f"http://127.0.0.1:9/{SECRET}"  # discard(9), which nobody serves


@pytest.fixture
def opsctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    run = invoker(tmp_path, monkeypatch)
    quick = partial(Courier, post=partial(post, within=0.1))
    monkeypatch.setattr(notifying, "Courier", quick)
    monkeypatch.delenv("NOT_SET", raising=False)
    webhooks = f"notices: [{{url: '{CLOSED}'}}, {{url: 'env:NOT_SET', form: slack}}]"
    text = INVENTORY.replace("version: 1\n", f"version: 1\ndefaults: {{{webhooks}}}\n")
    (tmp_path / "inventory.yaml").write_text(text)
    return run


def test_a_line_for_each(opsctl: Callable[..., Any]) -> None:
    done = opsctl("notices", "test", "alpha")
    assert done.exit_code == 3
    assert done.stdout.splitlines()[:2] == [
        "FAIL  webhook 1 (json)  from here: no connection",
        "FAIL  webhook 2 (slack, env:NOT_SET)  from here: the environment variable NOT_SET is not "
        "set",
    ]


@pytest.mark.parametrize("form", ["--json", "--debug"])
def test_no_output_holds_the_url(opsctl: Callable[..., Any], form: str) -> None:
    done = opsctl("notices", "test", form)
    assert done.exit_code == 3
    assert "webhook 1 (json)" in done.output
    for part in (SECRET, "127.0.0.1"):
        assert part not in done.output
        assert part not in repr(done.exception)


def test_a_report_names_each_fault(opsctl: Callable[..., Any]) -> None:
    report = json.loads(opsctl("notices", "test", "--json").stdout)
    assert (report["command"], report["verdict"]) == ("notices test", "fail")
    assert [row["from"] for row in report["data"]["notices"]] == ["here", "here"]
    assert {reason["code"] for reason in report["reasons"]} == {"notice_failed"}


def test_a_service_without_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = invoker(tmp_path, monkeypatch)("notices", "test", "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["reasons"][0]["code"]) == (2, "no_notices")
    assert "docs/notices.md" in report["reasons"][0]["remedy"]
