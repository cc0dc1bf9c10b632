"""Whether every request was answered, and whether the answers look like answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from opsctl.baseline import Baseline, Prompt
from opsctl.repetition import tail_loop
from opsctl.sglang import GenerateAnswer, ServerError
from opsctl.smoke.judge import MIN_TOKENS
from opsctl.smoke.lossless import judged
from opsctl.smoke.model import QUOTE, Check
from opsctl.smoke.stages import ALONE, CONTINUED, PULSE, Ran, stage_of
from opsctl.text import counted
from opsctl.traffic import Sample

# Stages whose unanswered requests are judged by a check of their own.
_JUDGED_APART: Final = frozenset({"hang-up", "limit"})
_EXPECTED: Final = frozenset({"length", "stop"})
# Stages whose answers are whole: as many tokens of the prompt itself as the baseline has.
_WHOLE: Final = frozenset({ALONE, "streamed", "canary"})
_PIECES: Final = 2  # of a stream, at least; and the tokens that it takes


def checks(
    ran: Sequence[Ran],
    prompts: Sequence[Prompt],
    baseline: Baseline | None,
    *,
    healthy: bool | None = None,
) -> Iterator[Check]:
    """`answered`, `finish`, `text`, `short_answers`, `streaming`, `hang_up`, `context_limit`.

    `healthy` is what /health said while requests went unanswered; None if it was not asked.
    """
    yield _answered(ran, healthy)
    whole = [
        (stage.stage.name, sample, sample.answer)
        for stage in ran
        for sample in stage.samples
        if sample.answer is not None and not sample.job.request.hang_up_after
    ]
    yield _finish([each for each in whole if each[0] != "limit"], baseline)
    yield _text([each for each in whole if each[0] not in {"limit", CONTINUED}], baseline)
    yield _short(ran, prompts, baseline)
    yield _streaming(ran)
    yield _hang_up(ran)
    yield _limit(ran)


def _answered(ran: Sequence[Ran], healthy: bool | None) -> Check:
    """What the server refuses is ours, and hides no request that it lost."""
    name = "answered"
    judged = [stage for stage in ran if stage.stage.name not in _JUDGED_APART]
    errors = [(stage, sample.error) for stage in judged for sample in stage.samples if sample.error]
    lost = [(stage, error) for stage, error in errors if not _refused(error)]
    if errors:
        stage, _ = (lost or errors)[0]
        pulse = stage_of(ran, PULSE)
        alive = None if pulse is None else pulse.samples[0].answer is not None
        here = [error for each, error in lost or errors if each is stage]
        return _unanswered(stage, here, healthy, alive)
    total = sum(len(stage.samples) for stage in judged)
    if not total:
        return Check(name, "inconclusive", "nothing was asked")
    return Check(name, "pass", f"{total} of {total} requests")


def _refused(error: ServerError) -> bool:
    return error.status is not None and 400 <= error.status < 500


def _unanswered(
    stage: Ran, errors: Sequence[ServerError], healthy: bool | None, alive: bool | None
) -> Check:
    """`errors` are all refusals or none is. `alive` says whether a single request was answered
    afterwards; None if none was sent."""
    name, first = "answered", errors[0]
    evidence = {
        "stage": stage.stage.name,
        "unanswered": len(errors),
        "asked": len(stage.samples),
        "health": healthy,
        "answered_after": alive,
        "causes": sorted({error.cause for error in errors}),
    }
    where = f"{len(errors)} of {len(stage.samples)} requests of {stage.stage.name}"
    if _refused(first):
        return Check(name, "inconclusive", f"{where} were refused: {first.message}", evidence)
    kind, why = _cause(stage, errors, healthy=healthy, alive=alive)
    return Check(name, "fail", f"{where} {why}: {first.message}", evidence, kind=kind)


def _cause(
    stage: Ran, errors: Sequence[ServerError], *, healthy: bool | None, alive: bool | None
) -> tuple[str, str]:
    """What became of them: (kind, in words)."""
    if all(error.cause == "timeout" for error in errors):
        if alive:
            return "hang", "got no answer, and others do"
        if healthy:
            return "false_healthy", "got no answer, and /health says that all is well"
        return "hang", "hang"
    at_once = stage.stage.at_once
    if at_once == 1:
        return "crash", "failed"
    if any(sample.answer for sample in stage.samples):
        return "crash_on_shrinking_batch", f"failed once others of {at_once} at once had ended"
    return "crash_at_concurrency", f"failed, with {at_once} at once"


def _finish(
    whole: Sequence[tuple[str, Sample, GenerateAnswer]], baseline: Baseline | None
) -> Check:
    name = "finish"
    for stage, sample, answer in whole:
        asked, count = sample.job.request.max_new_tokens, answer.completion_tokens
        evidence = {
            "stage": stage,
            "prompt": sample.job.prompt,
            "finish_reason": answer.finish_reason,
            "completion_tokens": count,
            "asked": asked,
        }
        where = f"{sample.job.prompt} ({stage})"
        if answer.finish_reason not in _EXPECTED:
            given = answer.finish_reason or "none"
            reason = f"{where}: finish reason {given}, not length or stop"
            return Check(name, "fail", reason, evidence, kind="bad_finish")
        if answer.finish_reason == "length" and count is not None and count < asked:
            reason = f"{where}: cut off at {count} of {asked} tokens"
            return Check(name, "fail", reason, evidence, kind="truncated_output")
        blank = not answer.text.strip() and (count or 0) >= max(asked, MIN_TOKENS)
        if blank and not _expected(sample, answer, baseline):
            reason = f"{where}: {count} tokens and an empty text"
            return Check(name, "fail", reason, evidence, kind="empty_output")
    if not whole:
        return Check(name, "inconclusive", "there is no answer")
    return Check(name, "pass", f"{len(whole)} answers end as they should")


def _expected(sample: Sample, answer: GenerateAnswer, baseline: Baseline | None) -> bool:
    """Whether tokens and text are a part of the baseline's, from the place on that was asked for or
    up to its end."""
    known = baseline.answer(sample.job.sha256) if baseline else None
    if known is None:
        return False
    count = len(answer.output_ids)
    places = (sample.job.given, max(0, len(known.output_ids) - count))
    if all(known.output_ids[at : at + count] != answer.output_ids for at in places):
        return False
    return answer.text in known.text if answer.text else not known.text.strip()


def _text(whole: Sequence[tuple[str, Sample, GenerateAnswer]], baseline: Baseline | None) -> Check:
    """The text of the baseline's tokens is the baseline's. A loop is a fault where the trusted
    server's answer is none, and no near tie led into it."""
    name, loops = "text", 0
    for stage, sample, answer in whole:
        evidence = {"stage": stage, "prompt": sample.job.prompt, "text": answer.text[:QUOTE]}
        where = f"{sample.job.prompt} ({stage})"
        known = baseline.answer(sample.job.sha256) if baseline else None
        same = known if known and answer.output_ids == known.output_ids else None
        if same is not None and answer.text != same.text:
            reason = f"{where}: the baseline's tokens, and another text"
            evidence["expected_text"] = same.text[:QUOTE]
            return Check(name, "fail", reason, evidence, kind="text_divergence")
        loop = tail_loop(answer.output_ids)
        if loop is None or not loop.degenerate:
            continue
        if _led_into(sample, answer, baseline):
            loops += 1
            continue
        reason = f"{where}: its last {loop.covered} of {loop.total} tokens repeat {loop.period}"
        if baseline is None:
            return Check(name, "inconclusive", f"{reason}; only a baseline can tell", evidence)
        return Check(name, "fail", reason, evidence, kind="degenerate_output")
    beside = f", {loops} loops that the baseline has or a near tie led into" if loops else ""
    return Check(name, "pass", f"no degenerate text{beside}")


def _led_into(sample: Sample, answer: GenerateAnswer, baseline: Baseline | None) -> bool:
    """Whether the baseline has a loop at the same place, or the answer left it at a near tie: until
    there it loops as the baseline does, and nobody can say what should follow."""
    job = sample.job
    until = job.given + len(answer.output_ids)
    expected = tail_loop(baseline.begun(job.sha256, until)[job.given :]) if baseline else None
    looped = expected is not None and expected.degenerate
    return looped or _tied(sample, baseline)


def _short(ran: Sequence[Ran], prompts: Sequence[Prompt], baseline: Baseline | None) -> Check:
    """One right word. What the trusted server does not know nobody need know, and after a near
    tie an answer may put it elsewhere."""
    name = "short_answers"
    asked = {prompt.sha256: prompt for prompt in prompts if prompt.answer}
    judged = 0
    whole = (stage for stage in ran if stage.stage.name in _WHOLE)
    for sample in (sample for stage in whole for sample in stage.samples):
        prompt, answer = asked.get(sample.job.sha256), sample.answer
        if prompt is None or answer is None or sample.job.given:
            continue
        tokens = sample.job.request.max_new_tokens
        known = baseline.answer(prompt.sha256) if baseline else None
        if known is None or prompt.answer.lower() not in known.text.lower():
            continue
        if tokens < prompt.tokens or _tied(sample, baseline):
            continue
        judged += 1
        if prompt.answer.lower() not in answer.text.lower():
            reason = f"{prompt.id}: {answer.text.strip()[:60]!r}, without {prompt.answer!r}"
            return Check(name, "fail", reason, {"text": answer.text}, kind="wrong_answer")
    if not judged:
        return Check(name, "skipped", "the baseline has no right short answer to hold it against")
    return Check(name, "pass", f"{judged} right")


def _tied(sample: Sample, baseline: Baseline | None) -> bool:
    """Whether the answer left the baseline at a near tie."""
    found = judged(sample, baseline) if baseline else None
    return found is not None and found.outcome == "near_tie"


def _streaming(ran: Sequence[Ran]) -> Check:
    name = "streaming"
    whole, streamed = stage_of(ran, ALONE), stage_of(ran, "streamed")
    first = whole.samples[0].answer if whole else None
    second = streamed.samples[0].answer if streamed else None
    if first is None or second is None:
        return Check(name, "inconclusive", "not reached, or not answered")
    evidence = {"pieces": len(second.arrivals)}
    if (second.completion_tokens or 0) < _PIECES:
        reason = f"an answer of {counted(second.completion_tokens or 0, 'token')} is one piece"
        return Check(name, "skipped", reason, evidence)
    if len(second.arrivals) < _PIECES:
        reason = f"all {second.completion_tokens} tokens came in one piece"
        return Check(name, "fail", reason, evidence, kind="not_streamed")
    if second.output_ids and second.completion_tokens != len(second.output_ids):
        reason = f"{len(second.output_ids)} of {second.completion_tokens} tokens came"
        return Check(name, "fail", reason, evidence, kind="stream_divergence")
    if first.text != second.text and first.output_ids == second.output_ids:
        reason = "the same tokens, another text than without streaming"
        return Check(name, "fail", reason, evidence, kind="stream_divergence")
    return Check(name, "pass", f"{len(second.arrivals)} pieces, nothing lost", evidence)


def _hang_up(ran: Sequence[Ran]) -> Check:
    """That those beside it are right is `lossless`'s to say; that they came is here."""
    name, stage = "hang_up", stage_of(ran, "hang-up")
    if stage is None:
        return Check(name, "inconclusive", "not reached")
    errors = [sample.error for sample in stage.samples if sample.error]
    lost = [error for error in errors if not _refused(error)]
    if errors and not lost:
        reason = f"{len(errors)} of {len(stage.samples)} were refused: {errors[0].message}"
        return Check(name, "inconclusive", reason)
    if lost:
        kind = "hang" if all(error.cause == "timeout" for error in lost) else "crash_on_hang_up"
        reason = f"{len(lost)} of {len(stage.samples)} requests were lost: {lost[0].message}"
        return Check(name, "fail", reason, kind=kind)
    return Check(name, "pass", f"{len(stage.samples) - 1} requests beside it were answered")


def _limit(ran: Sequence[Ran]) -> Check:
    name, stage = "context_limit", stage_of(ran, "limit")
    if stage is None:
        return Check(name, "skipped", "a long context: --deep asks at its limit")
    sample = stage.samples[0]
    size = len(sample.job.request.prompt)
    if sample.error is not None:
        error = sample.error
        if _refused(error):
            return Check(name, "pass", f"{size} tokens are refused: {error.message}")
        kind = "hang" if error.cause == "timeout" else "crash"
        return Check(name, "fail", f"{size} tokens: {error.message}", kind=kind)
    answer = sample.answer
    assert answer is not None
    if answer.finish_reason not in _EXPECTED:
        reason = f"{size} tokens: finish reason {answer.finish_reason or 'none'}"
        return Check(name, "fail", reason, kind="bad_finish")
    return Check(name, "pass", f"{size} tokens, {answer.completion_tokens} more")
