"""`opsctl diagnose` of a real server's journal; of its incident in `test_incident`."""

from __future__ import annotations

import pytest
from traffic import send
from workbench import Bench

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def test_a_healthy_host(bench: Bench) -> None:
    send(requests=2, at_once=1)
    outcome = bench.opsctl("diagnose")
    report = outcome.report
    assert outcome.exit_code == 0, outcome.said
    assert (report["verdict"], report["incident"]) == ("pass", False)
    assert report["kind"] in {"ready", "decode_stats"}, report["lines"]
    assert report["data"]["source"] == "host"
    assert report["data"]["entries"] > 10
    assert report["data"]["gaps"] == []
