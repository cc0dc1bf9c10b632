"""The Prometheus text that SGLang's /metrics gives."""

from __future__ import annotations

import re
from typing import Final

_SAMPLE: Final = re.compile(
    r"(?P<name>sglang[:_]\w+)(?:\{(?P<labels>[^}]*)\})?[ \t]+(?P<value>[^ \t]+)(?:[ \t]+\d+)?"
)
# Labels that only say where a value comes from; the others (mode, stage, endpoint, status_code)
# tell values of one name apart.
_WHERE: Final = re.compile(
    r"(?:model_name|engine_type|tp_rank|pp_rank|dp_rank|moe_ep_rank|pid|component)="
)


def parse_metrics(text: str) -> dict[str, float]:
    """Values by name, as `sglang:gen_throughput` or `sglang:cuda_graph_passes_total{mode="x"}`.

    Labels that name a rank or the model are dropped, and the first rank's value stands: each
    rank repeats the same series, so a sum would count it again. Histograms' buckets and lines
    that are not samples are left out.
    """
    values: dict[str, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line.strip())
        if match is None or match["name"].endswith("_bucket"):
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        labels = re.findall(r'\w+="(?:[^"\\]|\\.)*"', match["labels"] or "")
        telling = ",".join(label for label in labels if not _WHERE.match(label))
        name = match["name"].replace("sglang_", "sglang:", 1)
        values.setdefault(f"{name}{{{telling}}}" if telling else name, value)
    return values
