"""Whether the verify path ran for each request, and how much of the drafts it kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from opsctl.sglang import DecodeBatch, GenerateAnswer
from opsctl.smoke.judge import MIN_TOKENS
from opsctl.smoke.model import Check
from opsctl.smoke.server import ServerFacts
from opsctl.smoke.stages import ALONE, ONE, Ran, stage_of
from opsctl.traffic import Sample


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Accept lengths, ratios of them, and shares; see docs/smoke.md for their grounds.

    `least` are tokens a step, `most` a share of the most that a step can yield, both over all
    prompts alone. `batch` is the ratio of a rung to the same requests one at a time, `previous` of
    this generation to the one before, `graphs` the share of decode lines under CUDA graph in
    batches that have one.
    """

    # A drafter that is never right still has its chance hits: in the lab 1.08 with a tree of 32
    # nodes and 1.09 with another rope theta. The least of a sound one there was 1.24, with a tree
    # of one node.
    least: float = 1.15
    # Text that a drafter knows by heart comes near the most for a request or two, never for all
    # of a mixed set.
    most: float = 0.97
    batch: float = 0.6
    previous: float = 0.85
    graphs: float = 0.95


def mean_accept_len(answers: Iterable[GenerateAnswer]) -> float | None:
    """Tokens a verify step over all of them; None where none counted its steps."""
    known = [
        (answer.meta.accept_len, answer.meta.verify_steps)
        for answer in answers
        if answer.meta.verify_steps and answer.meta.accept_len is not None
    ]
    steps = sum(count for _, count in known)
    return sum(length * count for length, count in known) / steps if steps else None


def accept_len_alone(ran: Iterable[Ran]) -> float | None:
    """The same over the prompts one at a time."""
    alone = stage_of(ran, ALONE)
    samples = alone.samples if alone else ()
    return mean_accept_len(sample.answer for sample in samples if sample.answer)


def checks(
    ran: Sequence[Ran],
    facts: ServerFacts,
    lines: Sequence[DecodeBatch],
    thresholds: Thresholds,
    previous: float | None,
) -> Iterator[Check]:
    """`verify_steps`, `acceptance`, `acceptance_in_batches`, `acceptance_before`, `cuda_graphs`.

    `lines` are the decode lines of the journal since the first request, `previous` the mean
    accept length of the generation before at these prompts.
    """
    yield _graphs(facts, lines, thresholds.graphs)
    if not facts.algorithm:
        yield Check("verify_steps", "skipped", "the server runs without speculation")
        return
    yield _steps(ran)
    mean = accept_len_alone(ran)
    yield _mean(mean, facts.draft_tokens, thresholds)
    yield _batches(ran, thresholds.batch)
    yield _before(mean, previous, thresholds.previous)


def _steps(ran: Sequence[Ran]) -> Check:
    """A piece of a stream that is not its last has no counters, so a client that went away has
    none."""
    name = "verify_steps"
    ended = [
        sample.answer
        for stage in ran
        for sample in stage.samples
        if sample.answer is not None and not sample.job.request.hang_up_after
    ]
    long = [each for each in ended if (each.completion_tokens or 0) >= MIN_TOKENS]
    counted = [each for each in long if each.meta.verify_steps is not None]
    if not long:
        return Check(name, "inconclusive", f"no answer of {MIN_TOKENS} tokens or more")
    if not counted:
        return Check(name, "inconclusive", "meta_info has no spec_verify_ct: nothing proves it")
    without = [each for each in counted if not each.meta.verify_steps]
    if without or len(counted) < len(long):
        reason = f"{len(long) - len(counted) + len(without)} of {len(long)} answers without a step"
        return Check(name, "fail", reason, kind="verify_path_unused")
    total = sum(each.meta.verify_steps or 0 for each in counted)
    return Check(name, "pass", f"{total} verify steps in {len(counted)} answers")


def _mean(mean: float | None, most: int | None, thresholds: Thresholds) -> Check:
    name = "acceptance"
    if mean is None:
        return Check(name, "inconclusive", "no answer gives its accept length")
    evidence = {"accept_len": round(mean, 3), "least": thresholds.least, "most": most}
    if mean < thresholds.least:
        reason = f"accept length {mean:.2f}: what is drafted is accepted by chance, if at all"
        return Check(name, "fail", reason, evidence, kind="zero_acceptance")
    if most is not None and mean > thresholds.most * most:
        reason = f"accept length {mean:.2f} of at most {most}: all that is drafted is accepted"
        return Check(name, "fail", reason, evidence, kind="implausible_acceptance")
    return Check(name, "pass", f"accept length {mean:.2f}", evidence)


def _batches(ran: Sequence[Ran], least: float) -> Check:
    """Against the same requests one at a time: a longer answer to the same prompt is another text,
    which may be easier to draft."""
    name = "acceptance_in_batches"
    if stage_of(ran, ONE) is None:
        return Check(name, "skipped", "the requests of a batch were not asked one at a time")
    first = {
        _asked(sample): sample.answer
        for stage in ran
        if stage.stage.name in {ALONE, ONE}
        for sample in stage.samples
        if sample.answer
    }
    ratios: dict[str, float] = {}
    for stage in ran:
        if stage.stage.at_once == 1 or stage.stage.name == "hang-up":
            continue
        pairs = [
            (first[_asked(sample)], sample.answer)
            for sample in stage.samples
            if sample.answer is not None and _asked(sample) in first
        ]
        one = mean_accept_len(each for each, _ in pairs)
        many = mean_accept_len(each for _, each in pairs)
        if one is not None and many is not None:
            ratios[stage.stage.name] = round(many / one, 3)
    evidence = {"ratios": ratios}
    if not ratios:
        return Check(name, "inconclusive", "no batch gives its accept length", evidence)
    worst = min(ratios, key=lambda rung: ratios[rung])
    told = f"{ratios[worst]:.0%} of that one at a time at {worst}"
    if ratios[worst] < least:
        return Check(name, "fail", told, evidence, kind="acceptance_collapse")
    return Check(name, "pass", f"at least {told}", evidence)


def _asked(sample: Sample) -> tuple[str, int, int]:
    """What makes two answers comparable: the prompt, how many tokens were asked for, how many of
    these came."""
    asked = sample.job.request.max_new_tokens
    came = (sample.answer.completion_tokens if sample.answer else None) or 0
    return sample.job.sha256, asked, min(asked, came)


def _before(mean: float | None, previous: float | None, least: float) -> Check:
    name = "acceptance_before"
    if previous is None:
        return Check(name, "skipped", "the generation before has no accept length on record")
    if mean is None:
        return Check(name, "inconclusive", "no answer gives its accept length")
    ratio = mean / previous
    evidence = {"accept_len": mean, "previous": previous, "ratio": round(ratio, 3), "least": least}
    told = f"accept length {mean:.2f}, {ratio:.0%} of the generation before's {previous:.2f}"
    if ratio < least:
        return Check(name, "fail", told, evidence, kind="acceptance_regression")
    return Check(name, "pass", told, evidence)


def _graphs(facts: ServerFacts, lines: Sequence[DecodeBatch], least: float) -> Check:
    name = "cuda_graphs"
    if not facts.captured:
        return Check(name, "skipped", "the server captured no graphs")
    largest = max(facts.captured)
    fitting = [
        line.cuda_graph for line in lines if line.cuda_graph is not None and line.running <= largest
    ]
    evidence = {"lines": len(fitting), "largest_captured": largest}
    if not fitting:
        reason = "no decode line of a batch that a graph holds: --decode-log-interval is long"
        return Check(name, "skipped", reason, evidence)
    share = sum(fitting) / len(fitting)
    told = f"{share:.0%} of {len(fitting)} decode lines"
    if share < least:
        return Check(name, "fail", told, evidence | {"share": share}, kind="cuda_graph_unused")
    return Check(name, "pass", told, evidence | {"share": share})
