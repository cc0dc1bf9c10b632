"""Whether the model computes NaN, told by the tokens: a server that does not look for NaN answers
with 200 all the same.

torch.argmax takes NaN for the greatest value, and of several the first: of logits that are all NaN
it makes token 0, and so in each step until what makes them is over: a batch of some size, say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opsctl.baseline import Baseline
from opsctl.smoke.lossless import Compared, compared
from opsctl.smoke.model import Check
from opsctl.smoke.stages import Ran
from opsctl.text import counted

_NAME: Final = "nan"
_ARGMAX_OF_NAN: Final = 0
# One answer may come to token 0 by another fault; where it is what ends texts, so do two.
_LEAST: Final = 3
_RUN: Final = 4  # tokens on end, or up to the answer's end


def check(ran: Sequence[Ran], baseline: Baseline | None) -> Check:
    """`nan`: fails where most answers that are wrong turn into token 0. What the journal says of
    NaN is the check `journal`'s."""
    if baseline is None:
        return Check(_NAME, "skipped", "only a baseline can tell token 0 from an answer")
    wrong = [each for each in compared(ran, baseline) if each.wrong]
    nan = [each for each in wrong if _is_nan(each)]
    if len(nan) < max(_LEAST, len(wrong) / 2):
        return Check(_NAME, "pass", "no answers turn into what argmax makes of NaN")
    first = nan[0]
    reason = (
        f"{counted(len(nan), 'answer')} of {len(wrong)} wrong ones turn into token "
        f"{_ARGMAX_OF_NAN}, which argmax makes of NaN: {first.sample.job.prompt} ({first.stage}) "
        f"from token {first.divergence.index} on"
    )
    stages = sorted({each.stage for each in nan})
    return Check(_NAME, "fail", reason, {"answers": len(nan), "stages": stages}, kind="nan_output")


def _is_nan(each: Compared) -> bool:
    assert each.divergence.index is not None
    run = each.ids[each.divergence.index :][:_RUN]
    return bool(run) and all(token == _ARGMAX_OF_NAN for token in run)
