"""The file for node_exporter's textfile collector, read back by Prometheus' own parser."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from acceptance_tools import decode, endpoints, measured
from prometheus_client.parser import text_string_to_metric_families

from opsctl.acceptance import Measured, exposition, reconcile, write_exposition

HOST = 'al"pha\\\nbeta'


def text_of(found: Measured, *, up: bool = True) -> str:
    return exposition(
        found,
        reconcile(found, endpoints(3.0), lifetime=True),
        labels={"host": HOST, "service": "s"},
        now=1000.5,
        up=up,
        generation=3,
    )


def test_what_is_written_is_read_back() -> None:
    text = text_of(measured(decode(4.0, 2), decode(2.0, 1), draft_tokens=8))
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.type == "gauge" and family.documentation for family in families.values())
    for name in families:
        assert text.count(f"# HELP {name} ") == text.count(f"# TYPE {name} gauge") == 1
    samples = {
        (s.name.removeprefix("opsctl_sglang_"), s.labels.get("source", s.labels.get("running"))): s
        for family in families.values()
        for s in family.samples
    }
    assert all(s.labels["host"] == HOST and s.labels["service"] == "s" for s in samples.values())
    assert all(s.timestamp is None for s in samples.values())  # the collector refuses them
    length = samples["accept_length_tokens", "decode lines"].value
    assert length == pytest.approx(10 / 3)
    assert samples["draft_acceptance_ratio", None].value == pytest.approx((length - 1) / 7)
    assert samples["accept_length_tokens", "/server_info"].value == 3.0
    assert samples["cuda_graph_ratio", "decode lines"].value == 1.0
    assert samples["batch_size_accept_length_tokens", "2"].value == 4.0
    assert samples["up", None].value == 1.0
    assert samples["generation", None].value == 3.0
    assert samples["last_decode_line_timestamp_seconds", None].value == 101.0
    percentiles = families["opsctl_sglang_accept_length_percentile_tokens"].samples
    assert [s.labels["percentile"] for s in percentiles] == ["10", "50", "90"]


def test_what_is_not_known_has_no_sample() -> None:
    text = text_of(measured(), up=False)
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["opsctl_sglang_up"] == found["opsctl_sglang_decode_lines"] == 0.0
    assert "opsctl_sglang_draft_acceptance_ratio" not in found
    assert "opsctl_sglang_last_decode_line_timestamp_seconds" not in found


def test_the_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "opsctl.prom"
    path.write_text("old\n")
    inode = path.stat().st_ino
    write_exposition(path, "new 1\n")
    assert path.read_text() == "new 1\n"
    assert path.stat().st_ino != inode
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "opsctl.prom"
    path.write_text("old\n")
    with pytest.raises(UnicodeEncodeError):
        write_exposition(path, "\ud800")
    assert path.read_text() == "old\n"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="none"):
        write_exposition(tmp_path / "none" / "x.prom", "new 1\n")
