"""The tables, the plot and the options of `opsctl metrics`."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from opsctl.acceptance import Endpoints, Measured, Placement, Sample, reconcile
from opsctl.cli import figures, metrics
from opsctl.cli.app import app
from opsctl.cli.context import Command
from opsctl.cli.terminal import console
from opsctl.journal import Diagnosis
from opsctl.rollout import metering
from opsctl.rollout.metering import Previous, Reading
from opsctl.sglang import DecodeBatch
from opsctl.units.properties import Unit

UNIT = Unit.from_show(
    {"Id": "a.service", "ActiveState": "active", "SubState": "running", "time": 500.0}
)


def measured(lengths: list[float], sizes: list[int] | None = None) -> Measured:
    lines = [
        DecodeBatch(running=size, accept_len=length, gen_throughput=10.0, cuda_graph=True)
        for length, size in zip(lengths, sizes or [1] * len(lengths), strict=True)
    ]
    samples = [Sample(100.0 + place, "a", line) for place, line in enumerate(lines)]
    return Measured.of(samples, draft_tokens=8)


def reading(found: Measured) -> Reading:
    told = Endpoints({"internal_states": [{"avg_spec_accept_length": 7.0}]}, {})
    return Reading(
        unit=UNIT,
        label="the present start",
        measured=found,
        endpoints=told,
        generation=3,
        since=None,
        truncated=False,
        incident=Diagnosis(incident=False),
    )


def sources(look: Reading) -> list[dict[str, Any]]:
    asked = reconcile(look.measured, look.endpoints, lifetime=True)
    return [json.loads(json.dumps(question.to_json())) for question in asked]


BEFORE = Previous(
    stay=Placement(2, 0.0, 50.0),
    measured=measured([2.0, 2.0]),
    record={"set": {"name": "ddtree", "version": "1.0.0"}},
)


def shown(capsys: pytest.CaptureFixture[str], look: Reading, previous: Previous) -> str:
    figures.show(look, previous, sources(look))
    return capsys.readouterr().out


def test_beside_the_generation_before(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, reading(measured([4.0, 4.0, 4.0])), BEFORE)
    assert "the present start (generation 3) beside generation 2 (ddtree 1.0.0)" in out
    assert re.search(r"^accept length, mean +4\.00 +2\.00 +2\.00$", out, re.MULTILINE)
    assert re.search(r"^draft acceptance +43% +14% +3\.00$", out, re.MULTILINE)
    assert re.search(r"^decode lines +3 +2 *$", out, re.MULTILINE)  # no ratio
    assert re.search(r"/server_info +7\.00 +since the server started", out)
    assert "up to 3 apart" in " ".join(out.split())


def test_alone_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, reading(measured([4.0])), Previous(note="none"))
    assert "beside" not in out
    assert not re.search(r"\bratio\b", out)
    assert shown(capsys, reading(measured([])), BEFORE) == ""


def test_many_batch_sizes_are_put_together(capsys: pytest.CaptureFixture[str]) -> None:
    few = shown(capsys, reading(measured([8.0, 2.0], [1, 3])), Previous())
    assert re.search(r"^3 +1 +2\.00 +10\.0$", few, re.MULTILINE)
    many = reading(measured([2.0, 4.0] + [1.0] * 9, [3, 4, *range(20, 29)]))
    out = shown(capsys, many, Previous())
    assert re.search(r"^3-4 +2 +3\.14 +10\.0$", out, re.MULTILINE)  # (3*2 + 4*4) / 7
    assert re.search(r"^17-32 +9 +1\.00", out, re.MULTILINE)


class Tty(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def plot(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, *, color: bool) -> str:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if not color:
        monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", stream)
    look = reading(measured([1.0, 8.0, 4.0] * 40))
    figures.show(look, Previous(), sources(look))
    return stream.getvalue()


def braille(text: str) -> bool:
    return any("\u2801" <= character <= "\u28ff" for character in text)


def test_the_plot_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    colored = plot(monkeypatch, Tty(), color=True)
    assert braille(colored)
    assert "\x1b[36m" in colored
    plain = plot(monkeypatch, Tty(), color=False)
    assert braille(plain)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain)
    assert not braille(plot(monkeypatch, io.StringIO(), color=True))


def test_a_terminal_without_braille_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Tty()
    stream.encoding = "ascii"
    assert not braille(plot(monkeypatch, stream, color=True))


def test_following_without_a_terminal_is_a_line_each() -> None:
    stream = io.StringIO()
    with figures.live(stream, quiet=False) as draw:
        draw(reading(measured([4.0])), BEFORE, SimpleNamespace(summary="one"))  # type: ignore[arg-type]
        draw(reading(measured([4.0])), BEFORE, SimpleNamespace(summary="two"))  # type: ignore[arg-type]
    assert stream.getvalue() == "one\ntwo\n"
    assert console(stream).is_terminal is False


class ScriptedMeter:
    """Stands in for the host: so many lines at each look, then Ctrl-C."""

    lifetime = True

    def __init__(self, *looks: int) -> None:
        self.looks = list(looks)

    def __call__(self, session: Any, scope: Any) -> ScriptedMeter:
        self.scope = scope
        return self

    def read(self) -> Reading:
        if not self.looks:
            raise KeyboardInterrupt
        return reading(measured([4.0] * self.looks.pop(0)))

    def previous(self) -> Previous:
        return BEFORE


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    session = SimpleNamespace(
        host=SimpleNamespace(name="alpha"), service=SimpleNamespace(name="s"), emit=print
    )

    @contextmanager
    def connected(self: Command, host: str | None, service: str | None) -> Iterator[Any]:
        self.host, self.service = "alpha", "s"
        yield session

    monkeypatch.setattr(Command, "session", connected)
    monkeypatch.setattr(metrics, "_EVERY", 0.0)

    def runs(meter: ScriptedMeter, *words: str) -> Any:
        monkeypatch.setattr(metering, "Meter", meter)
        return CliRunner().invoke(app, ["metrics", *words])

    return runs


def test_following_is_json_lines_until_ctrl_c(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.prom"
    result = run(ScriptedMeter(1, 0, 3), "--follow", "--json", "--prometheus", str(path))
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    assert [report["exit_code"] for report in reports] == [12, 0, 130]
    assert reports[1]["data"]["acceptance"]["count"] == 3
    assert "opsctl_sglang_decode_lines" in path.read_text()
    assert result.exit_code == 130


def test_the_file_on_stdout_is_alone_there(run: Any) -> None:
    result = run(ScriptedMeter(2), "--prometheus", "-")
    names = {family.name for family in text_string_to_metric_families(result.stdout)}
    assert "opsctl_sglang_accept_length_tokens" in names
    assert result.exit_code == 0
    nothing = run(ScriptedMeter(0), "--prometheus", "-")
    assert nothing.exit_code == 12
    assert "no decode line" in nothing.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--last", "soon"),
        ("--last", "1m", "--since", "1"),
        ("--prometheus", "-", "--json"),
        ("--prometheus", "/none/such/x.prom"),
    ],
)
def test_bad_usage(run: Any, words: tuple[str, ...]) -> None:
    assert run(ScriptedMeter(1), *words).exit_code == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90.0), ("10m", 600.0), ("2h", 7200.0), ("1d", 86400.0)]
)
def test_how_long(run: Any, text: str, seconds: float) -> None:
    meter = ScriptedMeter(1)
    assert run(meter, "--last", text).exit_code == 0
    assert meter.scope.last == seconds
