"""Statistics of this validation, with the standard library alone."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any


def chi_square_p(statistic: float, freedom: int) -> float:
    """P(X >= statistic) for a chi-square X: the regularised upper gamma Q(freedom/2, x/2).

    Series below a + 1 and Lentz's continued fraction above (Numerical Recipes, 6.2).
    """
    a, x = freedom / 2, statistic / 2
    if x <= 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        step = a
        while abs(term) > abs(total) * 1e-15:
            step += 1
            term *= x / step
            total += term
        return max(0.0, 1 - total * scale)
    b = x + 1 - a
    c, d = 1e300, 1 / b
    fraction = d
    for i in range(1, 10000):
        weight = -i * (i - a)
        b += 2
        d = 1 / (weight * d + b)
        c = b + weight / c
        fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return fraction * scale


def two_samples(
    first: Sequence[Hashable], second: Sequence[Hashable], least: float = 5.0
) -> dict[str, Any]:
    """Chi-square test that two samples come of one distribution.

    Outcomes whose expected count is below `least` in either sample are pooled into one cell; if
    that cell itself stays below, it joins the rarest of the others.
    """
    ours, theirs = Counter(first), Counter(second)
    sizes = (len(first), len(second))
    share = min(sizes) / sum(sizes)
    cells, rare = [], [0, 0]
    for outcome in ours.keys() | theirs.keys():
        pair = [ours[outcome], theirs[outcome]]
        if sum(pair) * share >= least:
            cells.append(pair)
        else:
            rare = [rare[0] + pair[0], rare[1] + pair[1]]
    cells.sort(key=sum, reverse=True)
    if sum(rare) * share >= least or not cells:
        cells.append(rare)
    elif sum(rare):
        cells[-1] = [cells[-1][0] + rare[0], cells[-1][1] + rare[1]]
    statistic = 0.0
    for pair in cells:
        for seen, size in zip(pair, sizes, strict=True):
            expected = sum(pair) * size / sum(sizes)
            statistic += (seen - expected) ** 2 / expected
    freedom = len(cells) - 1
    return {
        "chi2": round(statistic, 2),
        "freedom": freedom,
        "p": chi_square_p(statistic, freedom) if freedom else 1.0,
        "outcomes": len(ours.keys() | theirs.keys()),
        "pooled": round(sum(rare) / sum(sizes), 4),
    }


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and greatest."""
    return statistics.median(values), min(values), max(values)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Repeat by repeat, ours over theirs."""
    return [a / b for a, b in zip(ours, theirs, strict=False)]
