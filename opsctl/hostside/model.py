"""Which model a folder holds, without reading its weights."""

from __future__ import annotations

import json
import os
from typing import Any, Dict

from .install import read_bytes, sha256

# What decides the answers beside the weights. An index names every tensor of the weights.
_SMALL = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tiktoken.model",
)
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt")


def facts(path: str) -> Dict[str, Any]:
    """{files: {name: sha256}, dtype, quantization}, empty where `path` is no folder here.

    `weights` among the files is a hash over the names and sizes of the weights: reading 590 GB
    would take minutes, and another model of the same sizes has another index or configuration.
    """
    try:
        names = sorted(os.listdir(path))
    except OSError:
        return {}
    files = {}
    weights = []
    for name in names:
        whole = os.path.join(path, name)
        if name in _SMALL or name.endswith(".index.json"):
            data = read_bytes(whole)
            if data is not None:
                files[name] = sha256(data)
        elif name.endswith(_WEIGHTS):
            weights.append("%s %d" % (name, os.stat(whole).st_size))
    if weights:
        files["weights"] = sha256("\n".join(weights).encode())
    config = _config(os.path.join(path, "config.json"))
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else {}
    quantization = config.get("quantization_config") or inner.get("quantization_config") or {}
    dtypes = [each.get(key) for each in (config, inner) for key in ("torch_dtype", "dtype")]
    return {
        "files": files,
        "dtype": str(next((each for each in dtypes if each), "")),
        "quantization": str(quantization.get("quant_method") or ""),
    }


def _config(path: str) -> Dict[str, Any]:
    try:
        found = json.loads(read_bytes(path) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
