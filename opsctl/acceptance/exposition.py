"""The figures as Prometheus text, for node_exporter's textfile collector.

https://prometheus.io/docs/instrumenting/exposition_formats/; base units, as
https://prometheus.io/docs/practices/naming/ asks for. What is not known has no sample: a zero
would be a measurement.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opsctl.acceptance.measure import Measured
from opsctl.acceptance.reconcile import Question

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

_PREFIX = "opsctl_sglang"

_HELP = {
    "accept_length": "Tokens a verify step yields, the bonus token included, by source.",
    "cuda_graph": "Share of decode steps replayed from a CUDA graph, by source.",
    "gen_throughput": "Generated tokens per second of a data-parallel rank, by source.",
    "verify_steps": "Verify steps, by source.",
    "verifies": "Requests verified, one for each step that they took part in, by source.",
    "requests_running": "Requests running, by source.",
    "requests_queued": "Requests waiting, by source.",
}


def exposition(
    measured: Measured,
    questions: Sequence[Question],
    *,
    labels: Mapping[str, str],
    now: float,
    up: bool,
    generation: int | None,
) -> str:
    """The whole file. `labels` are on every sample; `now` is the host's clock, Unix seconds."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    class Figures(Collector):
        def collect(self) -> Iterator[GaugeMetricFamily]:
            yield from _families(measured, questions, labels, now=now, up=up, generation=generation)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    return generate_latest(registry).decode("utf-8")


def _families(
    measured: Measured,
    questions: Sequence[Question],
    labels: Mapping[str, str],
    *,
    now: float,
    up: bool,
    generation: int | None,
) -> Iterator[GaugeMetricFamily]:
    from prometheus_client.core import GaugeMetricFamily

    def family(
        name: str, text: str, samples: Sequence[tuple[Mapping[str, str], float | None]]
    ) -> Iterator[GaugeMetricFamily]:
        known = [(more, value) for more, value in samples if value is not None]
        if known:
            keys = [*labels, *known[0][0]]
            found = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=keys)
            for more, value in known:
                found.add_metric([*labels.values(), *more.values()], value)
            yield found

    def one(name: str, text: str, value: float | None) -> Iterator[GaugeMetricFamily]:
        return family(name, text, [({}, value)])

    length = measured.acceptance.accept_len
    yield from one("up", "1 while the unit is active.", float(up))
    yield from one("generation", "The generation of the span.", generation)
    yield from one("decode_lines", "Decode lines in the span.", measured.acceptance.count)
    yield from one(
        "last_decode_line_timestamp_seconds", "When the last decode line came.", measured.last
    )
    yield from one("measured_timestamp_seconds", "When this was measured.", now)
    yield from one(
        "draft_acceptance_ratio",
        "Accepted drafts over drafted tokens: (accept length - 1) / (draft tokens - 1).",
        measured.draft_acceptance,
    )
    for question in questions:
        name = question.name
        if question.unit not in {"requests", "steps"}:  # these end the name already
            name = f"{name}_{question.unit}"
        ranks = any(figure.rank for figure in question.figures)
        yield from family(
            name,
            _HELP[question.name],
            [
                ({"source": f.source} | ({"dp_rank": f.rank} if ranks else {}), f.value)
                for f in question.figures
            ],
        )
    if length is not None:
        yield from family(
            "accept_length_percentile_tokens",
            "Percentiles of the decode lines' accept length.",
            [
                ({"percentile": "10"}, length.p10),
                ({"percentile": "50"}, length.p50),
                ({"percentile": "90"}, length.p90),
            ],
        )
    yield from family(
        "batch_size_accept_length_tokens",
        "Accept length of the decode lines with so many requests running.",
        [
            ({"running": str(size)}, found.accept_len.mean if found.accept_len else None)
            for size, found in measured.batch_sizes.items()
        ],
    )


def write_exposition(path: Path, text: str) -> None:
    """Replace `path` whole: node_exporter may read it at any moment.

    Raises:
        OSError: it cannot be written; nothing is left behind.
    """
    # Not *.prom, which is what the collector reads.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)  # the exporter runs as somebody else
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
