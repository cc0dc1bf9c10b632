"""Train the tiny target: a Qwen3 of 0.3 million weights that knows its corpus by heart."""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Course:
    """How long, on how much and how fast a target learns."""

    batch: int = 4
    length: int = 320
    steps: int = 300
    rate: float = 4e-3


TINY = Course()


def new_model() -> Any:
    """The tiny Qwen3, untrained."""
    config = Qwen3Config(**SHAPE, num_hidden_layers=LAYERS, rope_theta=1_000_000.0)
    return Qwen3ForCausalLM(config)


def train(
    model: Any,
    documents: Callable[[int, int], Documents],
    say: Callable[[str], None],
    course: Course = TINY,
) -> Any:
    """`model`, trained in place. `documents(length, seed)` is a stream of texts."""
    model = model.float().train()
    source = documents(course.length, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=course.rate, betas=(0.9, 0.98))
    for step in range(1, course.steps + 1):
        warm = min(1.0, step / 50)
        cosine = math.cos(math.pi * step / course.steps)
        for group in optimizer.param_groups:
            group["lr"] = course.rate * warm * 0.5 * (1 + cosine) + 1e-5
        rows = [source.draw() for _ in range(course.batch)]
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
            say(f"target: step {step} of {course.steps}, loss {loss.item():.4f}")
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
