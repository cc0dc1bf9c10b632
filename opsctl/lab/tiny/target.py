"""Train the tiny target: a Qwen3 of 0.3 million weights that knows its corpus by heart."""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from .text import END, SPECIAL, VOCABULARY, Documents

CONTEXT = 2048
HIDDEN, LAYERS = 64, 6
# Shared by target and drafter, except for rope_theta.
SHAPE: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "eos_token_id": END,
}
_BATCH, _LENGTH, _STEPS, _RATE = 4, 320, 300, 4e-3


def train(documents: Callable[[int, int], Documents], say: Callable[[str], None]) -> Any:
    """The trained model. `documents(length, seed)` is a stream of texts."""
    config = Qwen3Config(**SHAPE, num_hidden_layers=LAYERS, rope_theta=1_000_000.0)
    model = Qwen3ForCausalLM(config).float().train()
    source = documents(_LENGTH, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_RATE, betas=(0.9, 0.98))
    for step in range(1, _STEPS + 1):
        warm = min(1.0, step / 50)
        for group in optimizer.param_groups:
            group["lr"] = _RATE * warm * 0.5 * (1 + math.cos(math.pi * step / _STEPS)) + 1e-5
        rows = [source.draw() for _ in range(_BATCH)]
        ids = torch.tensor([row for row, _ in rows])
        labels = ids.clone()
        for row, (_, prompt) in enumerate(rows):
            labels[row, :prompt] = -100
        logits = model(ids).logits[:, :-1]
        loss = functional.cross_entropy(
            logits.reshape(-1, VOCABULARY), labels[:, 1:].reshape(-1), ignore_index=-100
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            say(f"target: step {step} of {_STEPS}, loss {loss.item():.4f}")
    # A row of zeros gives the logit 0, far below any learnt token's: no text of this model
    # ends early or shows a special token.
    model.lm_head.weight.data[: len(SPECIAL)] = 0
    return model.eval()


def save(model: Any, folder: Path) -> None:
    """Write weights and configuration as the hub's Qwen3 models have them."""
    weights = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    config = {
        **SHAPE,
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": LAYERS,
        "rope_theta": 1_000_000.0,
        "bos_token_id": 0,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    generation = {"eos_token_id": END, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation) + "\n", encoding="utf-8")
