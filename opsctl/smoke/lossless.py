"""Whether answers are the baseline's, and where they stop being so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from opsctl.baseline import Baseline, Divergence, Prompt
from opsctl.sglang import GenerateAnswer
from opsctl.smoke.model import QUOTE, Check
from opsctl.smoke.server import padded
from opsctl.smoke.stages import ALONE, CONTINUED, RESUMED, Ran, answers_alone, stage_of
from opsctl.text import counted
from opsctl.traffic import Sample

_SHOWN: Final = 12  # divergences in the evidence
_TOKENS_SHOWN: Final = 40
# Steps that say something, and the share of them that rejects every draft: in the lab more than
# half of a sound server's.
_ENOUGH_STEPS: Final = 50
_SELDOM: Final = 0.02
# The share of prompts that a baseline may lack and still vouch for a server: another prefill chunk
# makes another long prompt of one or two.
_UNKNOWN: Final = 1 / 3
_ARGMAX_OF_NAN: Final = 0
# One answer may come to token 0 by another fault; where it is what ends texts, so do two.
_LEAST_NAN: Final = 3
_RUN_OF_NAN: Final = 4  # tokens on end, or up to the answer's end


@dataclass(frozen=True, slots=True)
class Compared:
    """One answer beside the baseline's."""

    stage: str
    at_once: int
    sample: Sample
    ids: tuple[int, ...]  # with the beginning that a continued answer's prompt had
    divergence: Divergence
    judged: int  # tokens of it that could be held against the baseline's

    @property
    def wrong(self) -> bool:
        return self.divergence.outcome == "wrong"

    @property
    def cached(self) -> bool:
        """The server took more than its first tokens of the prompt from the prefix cache."""
        answer = self.sample.answer
        return answer is not None and (answer.cached_tokens or 0) > 1


def judged(
    sample: Sample, baseline: Baseline, begun: tuple[int, ...] | None = None
) -> Divergence | None:
    """What the baseline says of an answer with its beginning: `begun`, or as many of the baseline's
    own tokens as its prompt had. Of a client that went away what it got. None without an answer, or
    one to compare with."""
    job, answer = sample.job, sample.answer
    if answer is None:
        return None
    if begun is None:
        begun = baseline.begun(job.sha256, job.given)
    gone = job.request.hang_up_after is not None
    asked = len(answer.output_ids) if gone else job.request.max_new_tokens
    return baseline.judge(job.sha256, begun + answer.output_ids, len(begun) + asked)


def compared(ran: Sequence[Ran], baseline: Baseline) -> list[Compared]:
    """Every answer that the baseline has one for; of a client that went away what it got, and of
    a continued or resumed answer its beginning as well."""
    found, whole = [], answers_alone(ran)
    for stage in ran:
        name, at_once = stage.stage.name, stage.stage.at_once
        for sample in stage.samples:
            answer = sample.answer
            if answer is None:
                continue
            begun = baseline.begun(sample.job.sha256, sample.job.given)
            if name == CONTINUED:
                begun = _beginning(whole[sample.job.sha256], sample)
                if not begun:
                    continue
            divergence = judged(sample, baseline, begun)
            if divergence is not None:
                ids = begun + answer.output_ids
                until = _until(divergence, len(baseline.begun(sample.job.sha256, len(ids))))
                told = max(0, until - len(begun))
                found.append(Compared(name, at_once, sample, ids, divergence, told))
    return found


def _until(divergence: Divergence, common: int) -> int:
    """How many tokens of an answer are judged, of those that baseline and answer have both: all, or
    up to and with the one that is another, where it can be told what that means."""
    if divergence.index is None:
        return common
    return min(common, divergence.index + (divergence.outcome != "unknown"))


def _beginning(alone: GenerateAnswer, sample: Sample) -> tuple[int, ...]:
    """The tokens of the answer that went into the prompt. None where its text became other
    tokens there, which the number of the prompt's tokens tells."""
    rest, answer = sample.job.request.max_new_tokens, sample.answer
    begun = alone.output_ids[: len(alone.output_ids) - rest]
    if answer is None or answer.prompt_tokens is None or alone.prompt_tokens is None:
        return ()
    return begun if answer.prompt_tokens == alone.prompt_tokens + len(begun) else ()


def checks(
    ran: Sequence[Ran],
    baseline: Baseline | None,
    captured: Sequence[int],
    none: str = "",
    *,
    deep: Sequence[Prompt] = (),
    recapture: str = "",
) -> Iterator[Check]:
    """`lossless`, `nan`, and `canary`: the first prompt's answer before and after all else.
    `none` says why there is no baseline; `recapture` is the command for one that has all of `deep`,
    the deep level's own prompts."""
    if baseline is None:
        reason = none or "there is no baseline to compare with"
        yield Check("lossless", "inconclusive", reason)
        yield Check("nan", "skipped", "only a baseline can tell token 0 from an answer")
        yield _canary(ran, [])
        return
    all_of_it = compared(ran, baseline)
    found = _lossless(all_of_it, _prompts(ran, deep), baseline, captured)
    lacking = baseline.lacks(deep)
    yield _without(found, lacking, len(deep), recapture) if lacking else found
    yield _nan(all_of_it)
    yield _canary(ran, all_of_it)


def _prompts(ran: Sequence[Ran], deep: Sequence[Prompt]) -> dict[str, str]:
    """The ids of all that were asked but the deep level's own, by their hashes; the context limit's
    has none."""
    apart = {"", *(prompt.sha256 for prompt in deep)}
    jobs = (sample.job for stage in ran for sample in stage.samples)
    return {job.sha256: job.prompt for job in jobs if job.sha256 not in apart}


def _lossless(
    found: Sequence[Compared],
    asked: Mapping[str, str],
    baseline: Baseline,
    captured: Sequence[int],
) -> Check:
    name = "lossless"
    unknown = [prompt for sha256, prompt in asked.items() if baseline.answer(sha256) is None]
    if not found:
        reason = "nothing was answered that is in"
        if len(unknown) == len(asked):
            reason = "none of the prompts is in" if asked else "no prompt fits the context, of"
        return Check(name, "inconclusive", f"{reason} {baseline.label}")
    count: Counter[str] = Counter(each.divergence.outcome for each in found)
    wrong = [each for each in found if each.wrong]
    evidence: dict[str, Any] = {
        "baseline": baseline.id,
        "reference": baseline.reference,
        "near_tie_nats": baseline.near,
        "counts": dict(count),
        "tokens_judged": sum(each.judged for each in found),
        "not_in_baseline": unknown,
        "divergences": [_shown(each, baseline) for each in _worst(found)[:_SHOWN]],
    }
    told = ", ".join(f"{count[outcome]} {text}" for outcome, text in _WORDS if count[outcome])
    if wrong:
        kind, where = _named(found, wrong, captured)
        first = wrong[0]
        reason = (
            f"{counted(len(wrong), 'answer')} of {len(found)} wrong {where}: "
            f"{first.sample.job.prompt} ({first.stage}), {first.divergence.text}"
        )
        return Check(name, "fail", reason, evidence, kind=kind)
    if count["unknown"]:
        reason = f"{told}, of {len(found)} answers: the baseline cannot tell whether they are wrong"
        return Check(name, "inconclusive", reason, evidence)
    beside = ""
    if unknown:
        beside = f"; {len(unknown)} of {len(asked)} prompts not in the baseline: "
        beside += ", ".join(unknown)
    few = len(unknown) > _UNKNOWN * len(asked)
    reason = f"{told}, of {len(found)} answers{beside}"
    return Check(name, "inconclusive" if few else "pass", reason, evidence)


def _without(check: Check, lacking: Sequence[str], of: int, recapture: str) -> Check:
    """The check where the baseline lacks some of the deep level's own prompts, which are so many:
    with most of its evidence the level is another one."""
    evidence = dict(check.evidence)
    evidence["not_in_baseline"] = [*evidence.get("not_in_baseline", ()), *lacking]
    if check.verdict == "fail":
        return replace(check, evidence=evidence)
    few = len(lacking) > _UNKNOWN * of
    told = f"{len(lacking)} of {of} prompts of the deep level are not in the baseline"
    return replace(
        check,
        verdict="inconclusive" if few else check.verdict,
        reason=f"{check.reason}; {told}: {recapture}",
        evidence=evidence,
    )


_WORDS: Final = (
    ("equal", "equal"),
    ("near_tie", "different at a near tie"),
    ("unknown", "different"),
    ("wrong", "wrong"),
)


def _named(
    found: Sequence[Compared], wrong: Sequence[Compared], captured: Sequence[int]
) -> tuple[str, str]:
    """What the wrong answers have in common and the right ones have not: (kind, in words)."""
    right = [each for each in found if not each.wrong]
    if right and all(each.at_once > 1 for each in wrong):
        return _in_batches(_sizes(wrong), _sizes(right), captured)
    if right and all(each.stage in {CONTINUED, RESUMED} for each in wrong):
        # Both begin with an answer's KV out of the prefix cache; of the second it is most tokens
        # that are judged at all where near ties are many, so that it may be of any fault.
        if _at(RESUMED, wrong) and not _at(CONTINUED, wrong) and _at(CONTINUED, right):
            return "verify_divergence", "after near ties, and not after the prefix cache alone"
        return "cache_divergence", "where an answer is taken from the prefix cache alone"
    if all(each.cached for each in wrong) and any(not each.cached for each in right):
        return "cache_divergence", "after a hit in the prefix cache alone"
    where = "one at a time as well" if right else "in every stage"
    if _all_believed(wrong):
        return "implausible_acceptance", f"{where}, and hardly a draft was rejected"
    return "verify_divergence", where


def _at(stage: str, found: Sequence[Compared]) -> bool:
    return any(each.stage == stage for each in found)


def _in_batches(wrong: set[int], right: set[int], captured: Sequence[int]) -> tuple[str, str]:
    """By how many were at once where an answer was wrong, and where one was right."""
    if _by_padding(wrong, captured):
        where = f"in batches that are padded between captured sizes ({_told(wrong)} at once)"
        return "graph_divergence", f"{where} alone"
    if captured and max(wrong) <= max(captured) < max(right):
        return "graph_divergence", f"under CUDA graphs ({_told(wrong)} at once) alone"
    return "batch_divergence", f"in batches ({_told(wrong)} at once) alone"


def _by_padding(wrong: set[int], captured: Sequence[int]) -> bool:
    """A padded size is wrong, and so are no sizes but those that come through one as they empty."""
    return any(padded(size, captured) for size in wrong) and all(
        _comes_through_padding(size, captured) for size in wrong
    )


def _comes_through_padding(size: int, captured: Sequence[int]) -> bool:
    return any(padded(each, captured) for each in range(2, size + 1))


def _all_believed(wrong: Sequence[Compared]) -> bool:
    """Whether steps that accept no draft are missing. A drafter may be that good, but not while
    the text is wrong. An answer's last step is cut short, so it does not count."""
    answers = [each.sample.answer for each in wrong]
    counted = [answer.meta.histogram for answer in answers if answer and answer.meta.histogram]
    steps = sum(map(sum, counted))
    rejected = sum(max(0, histogram[0] - 1) for histogram in counted)
    return steps >= _ENOUGH_STEPS and rejected < _SELDOM * steps


def _sizes(found: Sequence[Compared]) -> set[int]:
    return {each.at_once for each in found}


def _told(sizes: set[int]) -> str:
    return ", ".join(str(size) for size in sorted(sizes))


def _worst(found: Sequence[Compared]) -> list[Compared]:
    order = {"wrong": 0, "unknown": 1, "near_tie": 2, "equal": 3}
    different = [each for each in found if each.divergence.outcome != "equal"]
    return sorted(different, key=lambda each: order[each.divergence.outcome])


def _shown(each: Compared, baseline: Baseline) -> dict[str, Any]:
    known, answer = baseline.answer(each.sample.job.sha256), each.sample.answer
    assert known is not None
    assert answer is not None
    at = each.divergence.index or 0
    begin = max(0, at - _TOKENS_SHOWN // 2)
    window = slice(begin, begin + _TOKENS_SHOWN)
    return {
        "stage": each.stage,
        "prompt": each.sample.job.prompt,
        "cached": each.cached,
        **each.divergence.to_json(),
        "from": begin,
        "expected_ids": list(known.output_ids[window]),
        "got_ids": list(each.ids[window]),
        "expected_text": known.text[:QUOTE],
        "got_text": answer.text[:QUOTE],
    }


def _nan(found: Sequence[Compared]) -> Check:
    """Whether the model computes NaN, told by the tokens: a server that does not look for it
    answers with 200 all the same. Fails where most answers that are wrong turn into token 0; what
    the journal says of NaN is the check `journal`'s.

    torch.argmax takes NaN for the greatest value, and of several the first: of logits that are all
    NaN it makes token 0, and so in each step until what makes them is over: a batch of some size.
    """
    name = "nan"
    wrong = [each for each in found if each.wrong]
    nan = [each for each in wrong if _is_nan(each)]
    if len(nan) < max(_LEAST_NAN, len(wrong) / 2):
        return Check(name, "pass", "no answers turn into what argmax makes of NaN")
    first = nan[0]
    reason = (
        f"{counted(len(nan), 'answer')} of {len(wrong)} wrong ones turn into token "
        f"{_ARGMAX_OF_NAN}, which argmax makes of NaN: {first.sample.job.prompt} ({first.stage}) "
        f"from token {first.divergence.index} on"
    )
    stages = sorted({each.stage for each in nan})
    return Check(name, "fail", reason, {"answers": len(nan), "stages": stages}, kind="nan_output")


def _is_nan(each: Compared) -> bool:
    assert each.divergence.index is not None
    run = each.ids[each.divergence.index :][:_RUN_OF_NAN]
    return bool(run) and all(token == _ARGMAX_OF_NAN for token in run)


def _canary(ran: Sequence[Ran], found: Sequence[Compared]) -> Check:
    """After all the rest a sound server still says what it said before."""
    name = "canary"
    alone, again = stage_of(ran, ALONE), stage_of(ran, "canary")
    before, after = (stage.samples[0] if stage else None for stage in (alone, again))
    first = before.answer if before else None
    last = after.answer if after else None
    if first is None or last is None:
        return Check(name, "inconclusive", "the first prompt was not answered twice")
    if first.output_ids == last.output_ids:
        return Check(name, "pass", "the first prompt's answer is the same before and after")
    outcomes = {
        each.divergence.outcome for each in found if each.sample is before or each.sample is after
    }
    reason = "the first prompt's answer is another one after the other requests"
    evidence = {"before": first.text[:QUOTE], "after": last.text[:QUOTE]}
    if "wrong" in outcomes:
        return Check(name, "fail", reason, evidence, kind="cache_divergence")
    if outcomes and outcomes <= {"equal", "near_tie"}:
        return Check(name, "pass", f"{reason}, at a near tie", evidence)
    return Check(name, "inconclusive", f"{reason}, and nothing tells a near tie", evidence)
