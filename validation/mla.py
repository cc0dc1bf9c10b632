"""A tiny target with Kimi K2.6's kind of attention and experts, and a DFLASH drafter for it.

    python mla.py OUT        writes OUT/target and OUT/draft

Both are trained here, on the lab's corpus, so that drafts are really accepted: on a GPU where
there is one, else on a CPU in some minutes. Ask it the corpus's own prompts, as chat: text cut
anywhere is strange to it, and to the drafter. The target is transformers' DeepseekV3ForCausalLM,
which SGLang serves with the model code that Kimi K2.6 wraps (sglang/srt/models/kimi_k25.py):
multi-head latent attention, and a sigmoid router with a correction bias (noaux_tc).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

LAB = Path(__file__).resolve().parents[1] / "opsctl" / "lab"
sys.path.insert(0, str(LAB))

from tiny import drafter, target, text  # noqa: E402

LAYERS = 3
# What kernels see of a head is Kimi's own: a latent of 512 + 64 a token, heads of 128 + 64,
# values of 128. The rest is small. One dense layer, then experts, as in Kimi.
SHAPE: dict[str, Any] = {
    "vocab_size": text.VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "moe_intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.827,
    "hidden_act": "silu",
    "max_position_embeddings": target.CONTEXT,
    "rms_norm_eps": 1e-6,
    "rope_theta": 50_000.0,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": text.END,
}
COURSE = target.Course(batch=2, steps=150)
# Head size 64: SGLang's rotary kernel takes no smaller one. The last layer's output is not on
# offer: transformers gives it normed, and SGLang captures a layer's output at the next layer.
PLAN = drafter.Plan(
    {
        "hidden_size": SHAPE["hidden_size"],
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "hidden_act": "silu",
        "max_position_embeddings": target.CONTEXT,
        "rms_norm_eps": SHAPE["rms_norm_eps"],
        "vocab_size": text.VOCABULARY,
        "attention_bias": False,
        "tie_word_embeddings": False,
    },
    target_depth=LAYERS,
    target_layers=(0, 1),
    theta=10_000.0,
    batch=16,
    length=256,
    steps=400,
)


def new_model() -> Any:
    """The untrained target. The correction bias is no weight: it stays what it is here."""
    config = DeepseekV3Config(**SHAPE)
    # The default, torch's grouped_mm, does not know fp32 on every GPU.
    config._experts_implementation = "eager"
    model = DeepseekV3ForCausalLM(config)
    # With transformers' 0.02 a token's own embedding drowns in the first layer's output, and
    # the text takes five times the steps to learn.
    model.model.embed_tokens.weight.data.normal_(0, 0.5)
    for layer in model.model.layers[SHAPE["first_k_dense_replace"] :]:
        layer.mlp.gate.e_score_correction_bias.normal_(0, 0.05)
    return model


def published(model: Any) -> dict[str, torch.Tensor]:
    """The weights by their published names: transformers stacks the experts of a layer.

    gate_up_proj is [experts, 2 * inner, hidden], the gate's rows first; down_proj is
    [experts, hidden, inner].
    """
    weights = {}
    for name, value in model.state_dict().items():
        prefix, _, kind = name.rpartition(".experts.")
        if not prefix:
            weights[name] = value
            continue
        for expert, matrix in enumerate(value):
            parts = {"down": matrix}
            if kind == "gate_up_proj":
                parts = dict(zip(("gate", "up"), matrix.chunk(2), strict=True))
            for part, rows in parts.items():
                weights[f"{prefix}.experts.{expert}.{part}_proj.weight"] = rows
    return {name: value.cpu().contiguous() for name, value in weights.items()}


def save(model: Any, folder: Path) -> None:
    """Weights and configuration, the names those of Kimi K2's own text model."""
    save_file(published(model), folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        **SHAPE,
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "rope_interleave": True,
        "rope_scaling": None,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    generation = {"eos_token_id": text.END, "do_sample": False}
    (folder / "generation_config.json").write_text(json.dumps(generation) + "\n", encoding="utf-8")


def say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main(out: Path) -> None:
    torch.manual_seed(20)
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    pairs = text.read_corpus(LAB / "tiny" / "corpus.txt")
    tokenizer = text.make_tokenizer(pairs)

    def documents(length: int, seed: int) -> text.Documents:
        return text.Documents(pairs, tokenizer, length, seed)

    for name in ("target", "draft"):
        (out / name).mkdir(parents=True, exist_ok=True)
        text.save_tokenizer(tokenizer, out / name, target.CONTEXT)
    # What it was trained on, since it knows nothing else: drafts have to be accepted.
    # Cut in the middle of an answer too, for there are few of them.
    prompts = [text.as_chat(p.prompt) + p.answer[:cut] for cut in (0, 60, 150, 300) for p in pairs]
    (out / "prompts.json").write_text(json.dumps(prompts, indent=1) + "\n", encoding="utf-8")
    trained = target.train(new_model(), documents, say, COURSE)
    save(trained, out / "target")
    drafter.save(drafter.train(trained, documents, say, PLAN), out / "draft")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
