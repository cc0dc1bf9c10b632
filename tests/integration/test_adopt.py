"""Diagnostic prints left in a deployed file: the near miss of the incident."""

from __future__ import annotations

import pytest
from workbench import DFLASH, LAB, PACKAGE, Bench

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

# The wheel has it, and no set touches it.
OTHER = "srt/managers/detokenizer_manager.py"
PRINT = "print('accepted so far')  # left by a hand"


def content(bench: Bench, path: str) -> str:
    return bench.inside(f"cat {PACKAGE}/{path}")


def append_print(bench: Bench, path: str) -> None:
    # Not through the inode, which the environment may share with uv's cache.
    full = f"{PACKAGE}/{path}"
    bench.inside(
        f'cp {full} /root/hand && echo "{PRINT}" >> /root/hand && cp --remove-destination '
        f"/root/hand {full} && rm /root/hand"
    )


def findings(bench: Bench) -> dict[str, str]:
    outcome = bench.opsctl("verify")
    assert outcome.exit_code == (3 if outcome.report["reasons"] else 0), outcome.said
    return {r["code"]: r["message"] for r in outcome.report["reasons"]}


def test_prints_are_refused_then_adopted_and_returned_to_the_byte(bench: Bench) -> None:
    bench.service["smoke"]["min_accept_len"] = None
    before = bench.files()["files"]
    older = bench.set_without("0009")
    first = bench.deploy("--patches", str(older), "--why", "the older set")
    assert first.exit_code == 0, first.said
    assert findings(bench) == {}

    append_print(bench, DFLASH)
    append_print(bench, OTHER)
    by_hand = {path: content(bench, path) for path in (DFLASH, OTHER)}
    assert all(text.endswith(PRINT + "\n") for text in by_hand.values())
    found = findings(bench)
    assert set(found) == {"file", "modified"}
    assert DFLASH in found["file"]
    assert OTHER in found["modified"]

    as_found = bench.fingerprint()
    refused = bench.deploy()
    assert (refused.exit_code, refused.code) == (3, "drift"), refused.said
    assert f"+{PRINT}" in refused.said
    assert "--adopt" in refused.said
    assert OTHER not in refused.said
    planned = bench.opsctl("plan", "--adopt").report["data"]["plan"]
    assert planned["adopted"] == [DFLASH]
    assert planned["installed"]["version"] == "0.9.0"
    assert bench.fingerprint() == as_found

    adopted = bench.deploy("--adopt", "--why", "over the prints")
    assert adopted.exit_code == 0, adopted.said
    assert PRINT not in content(bench, DFLASH)
    assert content(bench, OTHER) == by_hand[OTHER], "what the set does not touch is left alone"
    rows = bench.opsctl("history").report["data"]["generations"]
    assert [row["status"] for row in rows[-2:]] == ["found", "confirmed"]
    assert rows[-2]["adopted"] == [DFLASH]
    assert rows[-2]["set"]["version"] == "0.9.0"
    assert rows[-2]["rollback"]
    assert rows[-1]["in_place"]
    assert rows[-1]["why"] == "over the prints"
    assert "--speculative-algorithm" in " ".join(rows[-1]["arguments"])

    back = bench.opsctl("rollback", "--yes")
    assert back.exit_code == 0, back.said
    assert back.report["generation"] == rows[-2]["number"]
    assert {path: content(bench, path) for path in (DFLASH, OTHER)} == by_hand
    assert bench.fingerprint()["files"] == as_found["files"]
    assert set(findings(bench)) == {"modified"}, "what was adopted is recorded"

    full = f"{PACKAGE}/{OTHER}"
    bench.inside(f"head -n -1 {full} > /root/hand && cp --remove-destination /root/hand {full}")
    assert findings(bench) == {}
    clean = bench.opsctl("rollback", LAB, "0", "--yes")
    assert clean.exit_code == 0, clean.said
    assert bench.files()["files"] == before
