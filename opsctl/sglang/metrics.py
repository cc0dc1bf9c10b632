"""The Prometheus text that SGLang's /metrics gives."""

from __future__ import annotations

from typing import Final

# Labels that only say where a value comes from; the others (mode, stage, endpoint, status_code)
# tell values of one name apart, and so does dp_rank: data-parallel ranks have batches of their
# own. A server without data parallelism has no such label.
_WHERE: Final = frozenset(
    {"model_name", "engine_type", "tp_rank", "pp_rank", "moe_ep_rank", "pid", "component"}
)


def parse_metrics(text: str) -> dict[str, float]:
    """Values by name, as `sglang:gen_throughput` or `sglang:cuda_graph_passes_total{mode="x"}`.

    Labels that name a rank or the model are dropped, and the first rank's value stands: each
    rank repeats the same series, so a sum would count it again. Histograms' buckets are left
    out, and what is not SGLang's.

    Raises:
        ValueError: it is not in the exposition format.
    """
    from prometheus_client.parser import (  # 0.1 s of CPU, for one command
        text_string_to_metric_families,
    )

    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.startswith(("sglang:", "sglang_")) or "le" in sample.labels:
                continue
            telling = ",".join(
                f'{label}="{value}"'
                for label, value in sorted(sample.labels.items())
                if label not in _WHERE
            )
            name = sample.name.replace("sglang_", "sglang:", 1)
            values.setdefault(f"{name}{{{telling}}}" if telling else name, sample.value)
    return values


def by_rank(values: dict[str, float], name: str) -> dict[str, float]:
    """The values of one gauge by data-parallel rank (`DP0`, …), or under "" without such."""
    found = {"": values[name]} if name in values else {}
    prefix = f'{name}{{dp_rank="'
    for key, value in values.items():
        if key.startswith(prefix) and key.count("=") == 1:
            found["DP" + key.removeprefix(prefix).removesuffix('"}')] = value
    return found
