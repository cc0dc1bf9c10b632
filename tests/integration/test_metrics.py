"""`opsctl metrics` against what a real server counted for the very requests that were sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from traffic import Sent, check_metrics, send
from workbench import Bench

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture
def sent(bench: Bench) -> Sent:
    return send(requests=3, at_once=3)


def test_what_the_server_counted(bench: Bench) -> None:
    check_metrics(bench)


def test_a_file_for_the_textfile_collector(bench: Bench, sent: Sent, tmp_path: Path) -> None:
    path = tmp_path / "opsctl.prom"
    outcome = bench.opsctl("metrics", "--prometheus", str(path))
    assert outcome.exit_code == 0, outcome.said
    told = {
        (sample.name, sample.labels.get("source")): sample.value
        for family in text_string_to_metric_families(path.read_text(encoding="utf-8"))
        for sample in family.samples
    }
    data = outcome.report["data"]
    assert told["opsctl_sglang_up", None] == 1.0
    assert (
        told["opsctl_sglang_accept_length_tokens", "decode lines"]
        == data["acceptance"]["accept_len"]["mean"]
    )
    # The server counts on when a request of another test ends meanwhile.
    assert told["opsctl_sglang_accept_length_tokens", "/server_info"] == pytest.approx(
        data["acceptance"]["accept_len"]["mean"], rel=0.02
    )


def test_a_span_without_traffic_is_inconclusive(bench: Bench, sent: Sent) -> None:
    bench.inside("sleep 1.5")
    outcome = bench.opsctl("metrics", "--last", "1s")
    assert outcome.exit_code == 12, outcome.said
    assert outcome.code == "no_decode_lines"
    assert "send traffic or widen it" in outcome.said
