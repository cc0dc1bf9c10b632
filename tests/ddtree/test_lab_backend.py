"""The lab's CPU backend where it stands in for SGLang's Triton backend on MLA."""

# mypy: ignore-errors
from __future__ import annotations

import math
from types import SimpleNamespace

import cpu_attn
import torch


def test_mla_prefill_attends_to_the_earlier_tokens_of_its_own_request():
    torch.manual_seed(0)
    heads, size, value_size, lengths = 4, 24, 16, [5, 1, 3]
    q, k = torch.randn(2, sum(lengths), heads, size)
    v = torch.randn(sum(lengths), heads, value_size)
    layer = SimpleNamespace(tp_q_head_num=heads, v_head_dim=value_size, scaling=0.3)

    out = cpu_attn._attend_afresh(q, k, v, layer, lengths).view(-1, heads, value_size)

    start = 0
    for length in lengths:
        for token in range(start, start + length):
            for head in range(heads):
                scores = [
                    math.exp(0.3 * float(q[token, head] @ k[seen, head]))
                    for seen in range(start, token + 1)
                ]
                rows = v[start : token + 1, head]
                wanted = sum(s * row for s, row in zip(scores, rows, strict=True)) / sum(scores)
                torch.testing.assert_close(out[token, head], wanted)
        start += length
