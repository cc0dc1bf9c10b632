"""From answers, unit and journal to a verdict. Pure: everything it needs is passed in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opsctl.inventory.models import Smoke
from opsctl.journal.acceptance import Acceptance
from opsctl.journal.diagnosis import Diagnosis
from opsctl.journal.text import clean
from opsctl.repetition import tail_loop, words
from opsctl.sglang import ChatAnswer, GenerateAnswer, ServerError
from opsctl.smoke.model import QUOTE, Check, Probes, SmokeResult, UnitFacts, Verdict

# Fewer tokens may come from a prefill and a single step: too few to say anything.
MIN_TOKENS = 16


def judge(
    probes: Probes,
    settings: Smoke,
    *,
    unit_before: UnitFacts | None,
    unit_after: UnitFacts | None,
    diagnosis: Diagnosis | None,
    acceptance: Acceptance | None = None,
    strict_acceptance: bool = True,
) -> SmokeResult:
    """Every check that applies, in the order in which an operator would read them.

    `unit_before` and `unit_after` are read before and after the probes; `diagnosis` and
    `acceptance` are of the journal of this one start. None stands for evidence that could not
    be had, and makes its check inconclusive. With `strict_acceptance` off, low acceptance is a
    note: that is for a restored generation, which had it before.
    """
    checks: list[Check] = []
    for name, answer in (("chat", probes.chat), ("generate", probes.generate)):
        checks.extend(_answer_checks(name, answer, probes.max_tokens))
    checks.extend(_agreement(probes))
    if settings.speculative:
        checks.append(_verify_path(probes))
        checks.extend(
            _acceptance(probes, settings.min_accept_len, acceptance, strict=strict_acceptance)
        )
    checks.extend(_unit(unit_before, unit_after))
    checks.append(_journal(diagnosis))
    return SmokeResult(checks=tuple(checks), probes=probes, acceptance=acceptance)


def _answer_checks(
    name: str, answer: ChatAnswer | GenerateAnswer | ServerError, max_tokens: int
) -> Iterator[Check]:
    if isinstance(answer, ServerError):
        yield _no_answer(f"{name}_answered", answer)
        return
    text = answer.text + (answer.reasoning if isinstance(answer, ChatAnswer) else "")
    evidence = {
        "text": clean(text[:QUOTE]),
        "finish_reason": answer.finish_reason,
        "completion_tokens": answer.completion_tokens,
        "latency_s": round(answer.latency_s, 3),
    }
    if not text.strip():
        reason = f"HTTP 200 with an empty text ({answer.completion_tokens} completion tokens)"
        yield Check(f"{name}_answered", "fail", reason, evidence)
        return
    yield Check(f"{name}_answered", "pass", "HTTP 200 with text", evidence)
    yield _tokens(f"{name}_tokens", answer, max_tokens)
    ids = answer.output_ids if isinstance(answer, GenerateAnswer) else ()
    yield _repetition(f"{name}_text", ids or words(text))


def _no_answer(name: str, error: ServerError) -> Check:
    """A refusal of this very request (4xx) is ours, and says nothing of the server's health."""
    ours = error.cause == "failed" or (error.status is not None and 400 <= error.status < 500)
    evidence = {"cause": error.cause, "status": error.status, "body": error.body}
    return Check(name, "inconclusive" if ours else "fail", error.message, evidence)


def _tokens(name: str, answer: ChatAnswer | GenerateAnswer, max_tokens: int) -> Check:
    count, finish = answer.completion_tokens, answer.finish_reason
    evidence = {"completion_tokens": count, "max_tokens": max_tokens, "finish_reason": finish}
    verdict: Verdict
    if finish not in {"length", "stop"}:
        verdict, reason = "fail", f"finish reason {finish or 'missing'!r}, not length or stop"
    elif count is None:
        verdict, reason = "inconclusive", "the answer does not count its tokens"
    elif finish == "length" and count < max_tokens:
        verdict, reason = "fail", f"cut off at {count} of {max_tokens} tokens"
    elif count < MIN_TOKENS:
        verdict = "inconclusive"
        reason = f"the model stopped after {count} tokens, fewer than the {MIN_TOKENS} needed"
    else:
        verdict, reason = "pass", f"{count} tokens, finish reason {finish}"
    return Check(name, verdict, reason, evidence)


def _repetition(name: str, items: Sequence[object]) -> Check:
    loop = tail_loop(items)
    if loop is None:
        return Check(name, "pass", "no loop at its end")
    found = f"its last {loop.covered} of {loop.total} tokens repeat {loop.period}"
    evidence = {"period": loop.period, "covered": loop.covered, "total": loop.total}
    if loop.degenerate:
        return Check(name, "fail", f"degenerate text: {found}", evidence)
    return Check(name, "pass", "no degenerate loop", evidence, note=f"{name}: {found}")


def _agreement(probes: Probes) -> Iterator[Check]:
    chat, generate = probes.chat, probes.generate
    if isinstance(chat, ServerError) or isinstance(generate, ServerError):
        return
    spoke = bool((chat.text + chat.reasoning).strip()), bool(generate.text.strip())
    evidence = {"chat_finish": chat.finish_reason, "generate_finish": generate.finish_reason}
    if spoke[0] != spoke[1]:
        silent = "generate" if spoke[0] else "chat"
        yield Check("answers_agree", "fail", f"only {silent} came back empty", evidence)
    else:
        yield Check("answers_agree", "pass", "chat and generate answer alike", evidence)


def _verify_path(probes: Probes) -> Check:
    name, answer = "verify_path", probes.generate
    evidence: dict[str, object] = {"algorithm": probes.algorithm, "version": probes.version}
    if isinstance(answer, ServerError):
        return Check(name, "inconclusive", "no native answer whose counters could show it")
    evidence |= answer.meta.to_json()
    steps = answer.meta.verify_steps
    if steps:
        return Check(name, "pass", f"{steps} verify steps in this request", evidence)
    if probes.algorithm == "":
        reason = "the server runs without speculation (speculative_algorithm is None)"
        return Check(name, "fail", reason, evidence)
    if steps == 0:
        reason = f"no verify step in {answer.completion_tokens} tokens"
        return Check(name, "fail", reason, evidence)
    reason = "meta_info has no spec_verify_ct: nothing proves that a verify step ran"
    return Check(name, "inconclusive", reason, evidence)


def _acceptance(
    probes: Probes, floor: float | None, acceptance: Acceptance | None, *, strict: bool
) -> Iterator[Check]:
    name, answer = "accept_length", probes.generate
    if isinstance(answer, ServerError):
        if floor is not None:
            yield Check(name, "inconclusive", "no native answer to measure it on")
        return
    length = answer.meta.accept_len
    evidence: dict[str, object] = {"accept_len": length, "min_accept_len": floor}
    if acceptance is not None and acceptance.accept_len is not None:
        evidence["journal"] = acceptance.to_json()
    if length is None:
        if floor is not None:
            yield Check(name, "inconclusive", "the answer does not give it", evidence)
        return
    said = f"accept length {length:.2f}" + (" (nothing accepted)" if length < 1.005 else "")
    most = probes.draft_tokens or answer.meta.block_size
    note = ""
    # The last step may overshoot max_tokens, so an all-accepted request averages just below.
    if most is not None and most > 1 and length > most - 0.5:
        note = f"{said} of at most {most}: every draft accepted, as in a loop of text"
    if floor is None or length >= floor:
        limit = "" if floor is None else f", at least {floor:.2f}"
        yield Check(name, "pass", said + limit, evidence, note=note)
    elif strict:
        yield Check(name, "fail", f"{said}, below the floor of {floor:.2f}", evidence)
    else:
        low = f"{said}, below the floor of {floor:.2f}"
        yield Check(name, "pass", "measured, not judged", evidence, note=low)


def _unit(before: UnitFacts | None, after: UnitFacts | None) -> Iterator[Check]:
    if after is None:
        yield Check("unit_active", "inconclusive", "the unit's state could not be read")
        return
    state = f"{after.active_state}/{after.sub_state}"
    running = after.active_state == "active" and after.sub_state == "running"
    yield Check("unit_active", "pass" if running else "fail", f"the unit is {state}")
    if before is None:
        yield Check("same_start", "inconclusive", "the unit was not read before the probes")
        return
    evidence = {
        "invocation_id": [before.invocation_id, after.invocation_id],
        "n_restarts": [before.n_restarts, after.n_restarts],
    }
    if not before.invocation_id or not after.invocation_id:
        yield Check("same_start", "inconclusive", "the unit has no InvocationID", evidence)
    elif before.invocation_id != after.invocation_id:
        yield Check("same_start", "fail", "the unit was started anew meanwhile", evidence)
    else:
        yield Check("same_start", "pass", "the same InvocationID before and after", evidence)
    if after.n_restarts > before.n_restarts:
        reason = f"NRestarts rose from {before.n_restarts} to {after.n_restarts}"
        yield Check("no_restart", "fail", reason, evidence)
    else:
        yield Check("no_restart", "pass", f"NRestarts is still {after.n_restarts}", evidence)


def _journal(diagnosis: Diagnosis | None) -> Check:
    name = "journal"
    if diagnosis is None:
        return Check(name, "inconclusive", "the journal of this start could not be read")
    if not diagnosis.incident:
        return Check(name, "pass", "no sign of a crash since this start")
    found = f"{diagnosis.kind}: {diagnosis.lines[0] if diagnosis.lines else diagnosis.remedy}"
    if not diagnosis.crash:  # acceptance: the check of its own judges it, by the floor
        reason = "no sign of a crash since this start"
        return Check(name, "pass", reason, diagnosis.to_json(), note=found)
    return Check(name, "fail", found, diagnosis.to_json())
