from __future__ import annotations

from pathlib import Path

import pytest

from opsctl.journal import clean
from opsctl.sglang import LoadProgress, estimate_remaining, parse_all

LOG = Path(__file__).parent / "data" / "healthy-0.5.12.post1-dflash-cpu.log"
# A start as on the production host: eight ranks, shards, graphs, then the drafter.
GPU_START = """\
[2026-01-01 00:00:01 TP0] Load weight begin. avail mem=90.00 GB
[2026-01-01 00:00:01 TP1] Load weight begin. avail mem=90.00 GB
Multi-thread loading shards:  67% Completed | 43/64 [05:00<02:00, 7.10s/it]
[2026-01-01 00:10:01 TP1] Load weight end. elapsed=601.00 s, type=Kimi, avail mem=20.00 GB
Multi-thread loading shards: 100% Completed | 64/64 [10:00<00:00, 7.10s/it]
[2026-01-01 00:10:02 TP0] Load weight end. elapsed=605.00 s, type=Kimi, avail mem=20.00 GB
[2026-01-01 00:10:03 TP0] KV Cache is allocated. #tokens: 90000, KV size: 10.00 GB
[2026-01-01 00:10:04 TP0] Capture cuda graph begin. This can take up to several minutes.
Capturing batches (bs=8 avail_mem=7.70 GB):  50%|#####     | 4/8 [00:01<00:01,  9.11it/s]
[2026-01-01 00:10:14 TP0] Capture cuda graph end. Time elapsed: 9.00 s. mem usage=1.20 GB.
[2026-01-01 00:10:15 TP0] Load weight begin. avail mem=12.00 GB
Multi-thread loading shards: 100% Completed | 1/1 [00:01<00:00, 1.00it/s]
[2026-01-01 00:10:16 TP0] Load weight end. elapsed=1.00 s, type=DFlashDraftModel, avail mem=12 GB
[2026-01-01 00:10:17 TP0] KV Cache is allocated. #tokens: 90000, KV size: 1.00 GB
[2026-01-01 00:10:18 TP0] Capture cuda graph begin. This can take up to several minutes.
[2026-01-01 00:10:19 TP0] DFLASH draft runner ready. mask_token=<m>, mask_token_id=5
[2026-01-01 00:10:20] INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)
[2026-01-01 00:10:22] The server is fired up and ready to roll!"""
LABELS = """\
loading weights
loading weights
loading weights 43/64 shards 67 %
loading weights 43/64 shards 67 %
loading weights 64/64 shards 100 %
loading weights 64/64 shards 100 %
kv cache
graph capture
graph capture 4/8 batch sizes 50 %
graph capture 4/8 batch sizes 50 %
draft model
draft model 1/1 shards 100 %
draft model 1/1 shards 100 %
draft model 1/1 shards 100 %
draft model 1/1 shards 100 %
draft model 1/1 shards 100 %
warm-up
ready"""


def test_a_start_on_eight_gpus() -> None:
    progress, labels = LoadProgress(), []
    for at, line in enumerate(GPU_START.splitlines()):
        for found in parse_all(clean(line)):
            progress.feed(found, float(at))
        labels.append(progress.label)
    assert labels == LABELS.splitlines()
    assert progress.weights_s == 605.0
    assert progress.kv_tokens == 90000
    assert progress.ready_at == progress.last_progress_at == 17.0


def test_a_real_start_reaches_ready_in_order() -> None:
    progress, phases = LoadProgress(), []
    for at, line in enumerate(LOG.read_bytes().decode().split("\n")):
        for found in parse_all(clean(line)):
            progress.feed(found, float(at))
        if progress.phase not in phases:
            phases.append(progress.phase)
    # The CPU captures no graphs.
    assert phases == ["starting", "loading weights", "kv cache", "draft model", "warm-up", "ready"]


def test_the_same_bar_again_is_no_progress() -> None:
    bar = parse_all("Multi-thread loading shards:  25% Completed | 1/4 [00:00<00:01,  1.65it/s]")
    progress = LoadProgress()
    assert progress.feed(bar[0], 1.0)
    assert not progress.feed(bar[0], 2.0)
    assert progress.last_progress_at == 1.0


@pytest.mark.parametrize(
    ("history", "elapsed", "expected"),
    [([], 10.0, None), ([645.0], 45.0, 600.0), ([638, 645, 651], 700.0, 0.0), ([1, 3], 0.0, 2.0)],
)
def test_estimate_remaining(history: list[float], elapsed: float, expected: float | None) -> None:
    assert estimate_remaining(history, elapsed) == expected
