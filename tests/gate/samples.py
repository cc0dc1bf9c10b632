"""Gates as they might have been, for tests and for the pictures in docs/: made up, not measured.

The course of each figure is drawn from a seeded generator.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

from opsctl.gate import GateCheck, GateResult, Quantiles, Series, Shown, Soak, Span

_STARTED = 1_796_084_312.0
_SECONDS = 240

LOAD = (
    Span("starting", 0.0, 21.4),
    Span("loading weights", 21.4, 411.0),
    Span("kv cache", 411.0, 423.7),
    Span("graph capture", 423.7, 540.2),
    Span("draft model", 540.2, 618.9),
    Span("warm-up", 618.9, 645.3),
)


def _lengths(seed: int, mean: float, count: int) -> tuple[float, ...]:
    """Accept lengths of decode lines: between 1 and 8 tokens a verify step."""
    drawn = random.Random(seed)
    return tuple(round(min(max(drawn.gauss(mean, 0.9), 1.0), 8.0), 2) for _ in range(count))


def _ids(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


_NEW, _OLD, _WORSE = _lengths(2, 5.3, 480), _lengths(3, 5.0, 512), _lengths(5, 4.9, 470)


def _beside(now: tuple[float, ...], then: tuple[float, ...]) -> str:
    mine, others = statistics.fmean(now), statistics.fmean(then)
    return f"{mine:.2f}, {mine / others:.2f} times the {others:.2f} of generation 3"


def _course(seed: int, lengths: tuple[float, ...], speed: float) -> tuple[Series, ...]:
    drawn = random.Random(seed)
    step = _SECONDS / len(lengths)
    times = [round(place * step + drawn.random() * step / 2, 3) for place in range(len(lengths))]
    running = [min(16.0, 1.0 + at // 3) if at < _SECONDS - 12 else 5.0 for at in times]
    throughput = [
        round(speed * math.log1p(here) / math.log1p(16) * length / 5 * drawn.uniform(0.9, 1.1), 1)
        for here, length in zip(running, lengths, strict=True)
    ]
    figures: tuple[tuple[str, str, Sequence[float]], ...] = (
        ("accept length", "tokens a verify step", lengths),
        ("throughput", "token/s", throughput),
        ("running", "requests", running),
    )
    return tuple(
        Series(name, unit, tuple(zip(times, values, strict=True))) for name, unit, values in figures
    )


_DEPLOYED = (
    GateCheck(
        "deploy", "preflight", "pass", "sglang-k26-ddtree.service is active (running)", seconds=0.6
    ),
    GateCheck("deploy", "swap", "pass", "20 changed, 20 verified by hash", seconds=1.9),
    GateCheck(
        "deploy",
        "ready",
        "pass",
        "in 645 s, noticed 0.2 s after it said so",
        policy="deploy.ready_s <= 900",
        seconds=645.3,
    ),
)
_ANSWERED = (
    GateCheck("smoke", "answered", "pass", "58 of 58 requests answered", seconds=41.7),
    GateCheck("smoke", "finish", "pass", "58 of 58 ended with length or stop"),
    GateCheck("smoke", "text", "pass", "no loop that the baseline does not have"),
    GateCheck("smoke", "streaming", "pass", "96 tokens in 31 pieces", seconds=1.4),
    GateCheck("smoke", "hang_up", "pass", "2 of 2 beside it answered", seconds=2.2),
    GateCheck("smoke", "context_limit", "skipped", "a context of 262,144 tokens is for --deep"),
)
_PATHS = (
    GateCheck("smoke", "canary", "pass", "the first prompt's answer is the same before and after"),
    GateCheck(
        "smoke", "cuda_graphs", "pass", "99.8% of decode steps", policy="smoke.cuda_graph >= 0.95"
    ),
    GateCheck("smoke", "verify_steps", "pass", "1,204 verify steps"),
    GateCheck("smoke", "kv_pool", "pass", "0 tokens in use when idle"),
)


def _soaked(errors: int) -> tuple[GateCheck, ...]:
    return (
        GateCheck(
            "soak",
            "errors",
            "pass",
            f"{errors} of 1,832 requests",
            policy="soak.error_rate <= 0.01",
            seconds=float(_SECONDS),
        ),
        GateCheck("soak", "restarts", "pass", "the unit's one start served all of it"),
        GateCheck("soak", "journal", "pass", "no incident in 2,310 entries"),
    )


PASSED = GateResult(
    host="ct200",
    service="sglang-k26-ddtree",
    outcome="pass",
    ending="kept",
    exit_code=0,
    summary="the answers are the baseline's, also under 4 minutes of load",
    started_at=_STARTED,
    duration_s=1034.0,
    patch_set="ddtree@1.1.0",
    generation=4,
    before="generation 3 (ddtree 1.0.0)",
    version="0.5.12.post1",
    baseline="baseline 5c0e93d1a7b2 (plain, 24 prompts)",
    policy="gate.yaml",
    checks=(
        *_DEPLOYED,
        *_ANSWERED,
        GateCheck(
            "smoke",
            "lossless",
            "pass",
            "49 equal, 9 different at a near tie, of 58 answers",
            evidence={"baseline": "5c0e93d1a7b2", "counts": {"equal": 49, "near_tie": 9}},
        ),
        *_PATHS,
        *_soaked(0),
        GateCheck(
            "compare",
            "accept_length",
            "pass",
            _beside(_NEW, _OLD),
            policy="compare.accept_length >= 0.95",
        ),
        GateCheck(
            "compare",
            "throughput",
            "pass",
            "1,391 token/s, 1.04 times the 1,338 of generation 3",
            policy="compare.throughput >= 0.95",
        ),
    ),
    load=LOAD,
    series=_course(1, _NEW, 1400.0),
    accept_lens=_NEW,
    accept_lens_before=_OLD,
    divergences=(
        Shown(
            "rung-8",
            "prose-harbour",
            "near_tie",
            5,
            0.125,
            0,
            _ids("791 4325 315 264 4459 25 279"),
            _ids("791 4325 315 264 4459 11 902"),
            "The harbour of a town: the boats are in, the nets are dry.",
            "The harbour of a town, where boats are in and nets are dry.",
        ),
    ),
    soak=Soak(
        240.0,
        16,
        20261129,
        1832,
        0,
        333_840,
        1391.0,
        Quantiles(1.92, 3.4, 4.71),
        Quantiles(0.11, 0.31, 0.62),
    ),
)

FAILED = replace(
    PASSED,
    outcome="fail",
    ending="rolled back",
    exit_code=10,
    generation=3,
    summary="wrong answers in batches between captured sizes, and a fifth less throughput",
    remedy="look at what is padded to a captured graph (0008-ddtree-cuda-graph-width.patch);\n"
    "opsctl smoke ct200 --deep finds it again once the set is mended",
    duration_s=1719.0,
    checks=(
        *_DEPLOYED,
        *_ANSWERED,
        GateCheck(
            "smoke",
            "lossless",
            "fail",
            "4 answers of 58 wrong in batches between captured sizes (3 at once) alone: "
            "code-quicksort (rung-3), token 23 is 2652 instead of 422, 4.62 nats less likely",
            kind="graph_divergence",
            evidence={
                "baseline": "5c0e93d1a7b2",
                "reference": "plain",
                "near_tie_nats": 0.25,
                "counts": {"equal": 46, "near_tie": 8, "wrong": 4},
            },
        ),
        *_PATHS,
        *_soaked(3),
        GateCheck(
            "soak",
            "first_token",
            "inconclusive",
            "219 of 1,832 answers came in one piece: their first token's time is not known",
            policy="soak.first_token_p99 <= 1.0",
        ),
        GateCheck(
            "compare",
            "accept_length",
            "pass",
            _beside(_WORSE, _OLD),
            policy="compare.accept_length >= 0.95",
        ),
        GateCheck(
            "compare",
            "throughput",
            "fail",
            "1,066 token/s, 0.80 times the 1,338 of generation 3",
            kind="throughput_regression",
            policy="compare.throughput >= 0.95",
        ),
    ),
    series=_course(4, _WORSE, 1070.0),
    accept_lens=_WORSE,
    divergences=(
        Shown(
            "rung-3",
            "code-quicksort",
            "wrong",
            23,
            4.62,
            10,
            _ids("8 297 471 422 7 340 1167 340 25 1055 489 314 220 422 23 18 29 88 1142"),
            _ids("8 297 471 422 7 340 1167 340 25 1055 489 314 220 2652 2652 2652 11 5 5"),
            "def quicksort(items):\n    # An empty list, or one item, is sorted.\n"
            "    if len(items) <= 1:\n        return items\n    pivot = items[len(items) // 2]\n",
            "def quicksort(items):\n    # An empty list, or one item, is sorted.\n"
            "    if len(items) <= 1:\n        return return return, &&",
        ),
        Shown(
            "rung-3",
            "language-arabic",
            "wrong",
            4,
            3.1,
            0,
            _ids("15086 2288 1705 60 220 77 18"),
            _ids("15086 2288 1705 60 11 11"),
            "الميناء هادئ في الصباح.",
            "الميناء هادئ ، ،",
        ),
        *PASSED.divergences,
    ),
    soak=Soak(
        240.0,
        16,
        20261129,
        1832,
        3,
        255_840,
        1066.0,
        Quantiles(2.41, 4.4, 6.02),
        Quantiles(0.14, 0.42, 0.97),
    ),
)

INCONCLUSIVE = replace(
    PASSED,
    outcome="inconclusive",
    exit_code=12,
    summary="there is no baseline to compare with: health is unproved",
    remedy="opsctl restart ct200 --plain, then opsctl baseline capture ct200",
    baseline="",
    divergences=(),
    checks=(
        *_DEPLOYED,
        *_ANSWERED,
        GateCheck("smoke", "lossless", "inconclusive", "there is no baseline to compare with"),
        *_PATHS,
        *_soaked(0),
    ),
    accept_lens_before=(),
)

LOCKED = GateResult(
    host="ct200",
    service="sglang-k26-ddtree",
    outcome="fail",
    ending="untouched",
    exit_code=4,
    summary="the lock is held by deploy@ci since 12:04 (opsctl deploy)",
    started_at=_STARTED,
    duration_s=1.2,
    patch_set="ddtree@1.1.0",
    remedy="wait for it, or see opsctl lock show ct200",
    checks=(GateCheck("deploy", "lock_held", "fail", "the lock is held by deploy@ci since 12:04"),),
)

ALL = {"passed": PASSED, "failed": FAILED, "inconclusive": INCONCLUSIVE, "locked": LOCKED}

# What nobody's text may do to a page, a file or a log, in one line.
NASTY = (
    "<script>alert(1)</script> \"'&<img src=x onerror=alert(2)> ]]> </pre></style> {{ 7*7 }} "
    "::error::x %0A | `code` **bold** [link](https://example.org) www.example.org @someone #1 "
    "\x00\x08\x1b[31mred\x1b[0m \u202egnp.exe \u200b\ufeff \ud800 \uffff \U0001fffe "
    + "unbroken"
    * 60
)

HOSTILE = GateResult(
    host=NASTY,
    service=NASTY,
    outcome="fail",
    ending="not restored",
    exit_code=11,
    summary=NASTY,
    started_at=_STARTED,
    duration_s=1.0,
    patch_set=NASTY,
    before=NASTY,
    version=NASTY,
    baseline=NASTY,
    policy=NASTY,
    remedy=NASTY,
    checks=(
        GateCheck("smoke", NASTY, "fail", NASTY, NASTY, NASTY, {NASTY: NASTY}),
        GateCheck("soak", f"{NASTY}2", "inconclusive", NASTY, NASTY, NASTY),
    ),
    load=(Span(NASTY, 0.0, 3.0),),
    series=(Series(NASTY, NASTY, ((0.0, 1.0), (1.0, 2.0))),),
    accept_lens=(1.0, 2.0),
    accept_lens_before=(1.0,),
    divergences=(
        Shown(NASTY, NASTY, "wrong", 1, None, 0, (1, 2), (1,), f"a{NASTY}\n\n{NASTY}", f"b{NASTY}"),
    ),
)
