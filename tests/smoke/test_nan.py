"""NaN, told by the token that argmax makes of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from smoke_samples import FAR, RIGHT, answer, baseline, changed, ran

from opsctl.baseline import Baseline
from opsctl.smoke import Ran
from opsctl.smoke.lossless import checks
from opsctl.smoke.model import CHECKS, KINDS, Check

NAN = answer((*RIGHT[:5], *[0] * (len(RIGHT) - 5)))
ENDED = answer((*RIGHT[:5], 0), finish_reason="stop", completion_tokens=6)  # 0 ends texts there
OVER = answer((*RIGHT[:5], *[0] * 9, *RIGHT[14:]))  # once the batch had another size
SOUND = ran("alone", answer())


def nan(stages: Sequence[Ran], known: Baseline | None) -> Check:
    return next(check for check in checks(stages, known, (1, 2, 4)) if check.name == "nan")


@pytest.mark.parametrize(
    ("stages", "verdict"),
    [
        ((SOUND, ran("rung-2", *[NAN] * 3)), "fail"),
        ((SOUND, ran("rung-2", *[ENDED] * 3)), "fail"),
        ((ran("alone", *[NAN] * 3),), "fail"),
        ((SOUND, ran("rung-2", NAN, NAN)), "pass"),  # as few may be another fault's
        ((SOUND, ran("rung-2", *[OVER] * 3)), "fail"),
        ((SOUND, ran("rung-2", *[NAN] * 3, answer(changed(5, FAR)))), "fail"),
        ((SOUND, ran("rung-2", *[NAN] * 3, *[answer(changed(5, FAR))] * 4)), "pass"),
        ((SOUND, ran("rung-2", *[answer(changed(5, 0))] * 3)), "pass"),  # one place alone
        ((SOUND,), "pass"),
    ],
)
def test_token_0_for_good(stages: tuple[Ran, ...], verdict: str) -> None:
    found = nan(stages, baseline())
    assert found.verdict == verdict
    assert found.kind == ("nan_output" if verdict == "fail" else "")
    assert found.name in CHECKS
    assert "nan_output" in KINDS


def test_a_baseline_that_is_token_0_itself() -> None:
    zeros = answer([0] * 8)
    assert nan([ran("alone", *[zeros] * 3)], baseline(ids=[0] * 8)).verdict == "pass"


def test_without_a_baseline() -> None:
    assert nan([ran("alone", *[NAN] * 3)], None).verdict == "skipped"
