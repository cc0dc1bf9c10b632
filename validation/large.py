"""The time of a verify step on a 7B-class target of random weights.

A 135 M target is launch-bound, so its steps cost the same whatever their width. A step's cost does
not depend on the weights; the text means nothing, and accept lengths with it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from lab import Found, Lab, Pair, prompts
from steps import batches, profile

HEAD = 128  # width of an attention head, as in Llama 3
DUMMY = ("--load-format=dummy", "--speculative-draft-load-format=dummy")


def configs(hidden: int, layers: int, mask: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """config.json of a target shaped as Llama 3 8B (hidden 4096, 32 layers) and of a drafter.

    The drafter has DFLASH's five layers, the small pair's block of 8, and takes its features
    from target layers spread as `build_target_layer_ids` of SGLang spreads them.
    """
    if layers < 8:
        raise ValueError("fewer than 8 layers have no five distinct ones to take features from")
    shape = {
        "hidden_size": hidden,
        "intermediate_size": hidden * 7 // 2,
        "num_attention_heads": hidden // HEAD,
        "num_key_value_heads": max(1, hidden // HEAD // 4),
        "head_dim": HEAD,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
        "rope_theta": 500000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    target = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "rms_norm_eps": 1e-5,
        "mlp_bias": False,
        **shape,
    }
    taken = [round(1 + i * (layers - 4) / 4) for i in range(5)]
    draft = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 5,
        "num_target_layers": layers,
        "rms_norm_eps": 1e-6,
        "block_size": 8,
        "dflash_config": {"target_layer_ids": taken, "mask_token_id": mask},
        **shape,
    }
    return target, draft


def write_folders(folder: Path, small: Pair, hidden: int, layers: int) -> Pair:
    """Both folders, with the small target's tokenizer and the small drafter's mask token."""
    known = json.loads((small.draft / "config.json").read_text(encoding="utf-8"))
    mask = known["dflash_config"]["mask_token_id"]
    for name, config in zip(("target", "draft"), configs(hidden, layers, mask), strict=True):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
        for file in small.target.glob("tokenizer*.json"):
            shutil.copy(file, folder / name / file.name)
    # Servers start together and load 16 GB each meanwhile, so that a small share of the memory
    # that is free at the start may be gone when the pool is sized; the pool itself is capped.
    return Pair(folder / "target", folder / "draft", (*DUMMY, "--mem-fraction-static=0.85"))


def large(lab: Lab, found: Found) -> None:
    options = lab.arguments
    pair = write_folders(lab.work / "large", lab.small, options.large_hidden, options.large_layers)
    texts = [prompt for _, prompt in prompts(16)]
    specs = options.large_specs.split(",")
    found |= {"hidden": options.large_hidden, "layers": options.large_layers, "sizes": {}}
    servers = [lab.server(spec, pair, label="-large") for spec in specs]
    with lab.up(servers, found) as alive:
        batches(
            lab,
            alive,
            found["sizes"],
            sizes=options.large_sizes,
            repeats=options.large_repeats,
            tokens=options.large_tokens,
            texts=texts,
        )
        found["cuda_graph"] = {server.name: server.graph_share() for server in alive}
        if options.profile:
            found["profile"] = {
                server.name: profile(lab, server, options.profile, texts) for server in alive
            }
