"""0001-dflash-rope-theta on the real wheel: the wrong theta before, the right one after.

SGLang itself needs torch to be imported. So the code under test is taken out of the wheel by
its syntax tree and run as it stands: DFlashAttention.__init__, get_rope_config and get_rope,
with recording stand-ins only for the layers that they build.
"""

from __future__ import annotations
import __future__

import ast
import functools
from collections.abc import Callable
from typing import Any

import pytest
from patchset_tools import ddtree, real_wheel

from opsctl.patchset import apply, read_sources

pytestmark = pytest.mark.wheel

DFLASH = "srt/models/dflash.py"
COMMON = "srt/utils/hf_transformers/common.py"
SHIM = "srt/utils/hf_transformers/__init__.py"
FACTORY = "srt/layers/rotary_embedding/factory.py"
DEFAULT = 1e6  # DFlash's own, and the wrong value for every drafter that says otherwise

YARN = {"factor": 4.0, "original_max_position_embeddings": 4096}


class Layer:
    """Any layer or helper: takes everything, keeps its name and arguments."""

    def __init__(self, name: str, *arguments: Any, **keywords: Any) -> None:
        self.name, self.arguments, self.keywords = name, arguments, keywords


class Module:
    """torch.nn.Module, as far as a constructor needs it."""


class Torch:
    Tensor = object
    Module = Module

    @staticmethod
    def get_default_dtype() -> str:
        return "bfloat16"


class V5:
    """A config as transformers 5 makes it: no rope_theta; rope_scaling is an alias."""

    hidden_size, num_attention_heads, num_key_value_heads, head_dim = 64, 4, 2, 16

    def __init__(self, theta: float, **scaling: Any) -> None:
        self.rope_parameters = {"rope_type": "default"} | scaling | {"rope_theta": theta}

    @property
    def rope_scaling(self) -> dict[str, Any]:
        return self.rope_parameters


class V4:
    """A config as transformers 4 makes it, or a checkpoint's own class."""

    hidden_size, num_attention_heads, num_key_value_heads, head_dim = 64, 4, 2, 16

    rope_parameters: dict[str, Any] | None = None

    def __init__(self, theta: float | None, **scaling: Any) -> None:
        if theta is not None:
            self.rope_theta = theta
        self.rope_scaling = scaling or None


@functools.cache
def sources() -> dict[str, bytes]:
    found, _ = read_sources(
        real_wheel(), ddtree().target.package, [*ddtree().paths, COMMON, SHIM, FACTORY]
    )
    return {path: content for path, content in found.items() if content is not None}


@functools.cache
def code(patched: bool) -> bytes:
    content = apply(ddtree(), sources())[DFLASH].after if patched else sources()[DFLASH]
    assert content is not None
    return content


def run(source: bytes, path: str, names: set[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """Execute the top-level definitions `names` of a module, and nothing else of it."""
    body = [node for node in ast.parse(source).body if getattr(node, "name", "") in names]
    assert len(body) == len(names)
    # As the modules have it, so that annotations stay text.
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module(body, []), path, "exec", flags=flags, dont_inherit=True), namespace)
    return namespace


def imported(source: bytes) -> dict[str, str]:
    """What a module imports from SGLang: name to module."""
    return {
        alias.asname or alias.name: node.module
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sglang.")
        for alias in node.names
    }


def recorder(name: str) -> Callable[..., Layer]:
    return functools.partial(Layer, name)


def real_get_rope() -> Callable[..., Layer]:
    """The wheel's get_rope; the embedding classes that it chooses among are recorders."""
    namespace: dict[str, Any] = {"torch": Torch, "_ROPE_DICT": {}}
    namespace |= {name: recorder(name) for name in imported(sources()[FACTORY])}
    rope: Callable[..., Layer] = run(
        sources()[FACTORY], FACTORY, {"get_rope", "_get_rope_param"}, namespace
    )["get_rope"]
    return rope


def rotary(config: object, *, patched: bool) -> Layer:
    """The rotary embedding that DFlashAttention builds for `config`."""
    names = imported(code(patched))
    namespace: dict[str, Any] = {"nn": Torch, "torch": Torch}
    namespace |= {name: recorder(name) for name in names}
    namespace["get_tensor_model_parallel_world_size"] = lambda: 1
    namespace["AttentionType"] = type("AttentionType", (), {"ENCODER_ONLY": "encoder_only"})
    namespace["get_rope"] = real_get_rope()
    if "get_rope_config" in names:
        run(sources()[COMMON], COMMON, {"get_rope_config"}, namespace)
    run(code(patched), DFLASH, {"DFlashAttention"}, namespace)
    embedding: Layer = namespace["DFlashAttention"](config, layer_id=0).rotary_emb
    return embedding


def base(embedding: Layer) -> object:
    # Every embedding class takes head_size, rotary_dim, max_position, base, …
    return embedding.arguments[3]


CASES = [
    pytest.param(V5(5e6), "RotaryEmbedding", 5e6, DEFAULT, id="v5"),
    pytest.param(V5(10_000), "RotaryEmbedding", 1e4, DEFAULT, id="v5-int"),
    pytest.param(
        V5(5e6, rope_type="yarn", **YARN), "YaRNScalingRotaryEmbedding", 5e6, DEFAULT, id="v5-yarn"
    ),
    pytest.param(
        V5(5e6, rope_type="linear", factor=2.0),
        "LinearScalingRotaryEmbedding", 5e6, DEFAULT, id="v5-linear",
    ),
    pytest.param(V4(5e6), "RotaryEmbedding", 5e6, 5e6, id="v4"),
    pytest.param(
        V4(5e6, type="yarn", **YARN), "YaRNScalingRotaryEmbedding", 5e6, 5e6, id="v4-yarn"
    ),
    pytest.param(V4(None), "RotaryEmbedding", DEFAULT, DEFAULT, id="nothing-set"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "kind", "right", "before"), CASES)
def test_theta_before_and_after(config: object, kind: str, right: float, before: float) -> None:
    old, new = rotary(config, patched=False), rotary(config, patched=True)
    assert (old.name, base(old)) == (kind, before)
    assert (new.name, base(new)) == (kind, right)
    assert isinstance(base(new), float)
    # Nothing but theta changes: scaling, sizes and style are as they were.
    assert new.arguments[:3] + new.arguments[4:] == old.arguments[:3] + old.arguments[4:]
    assert new.keywords == old.keywords


def test_scaling_in_rope_parameters_alone_is_seen() -> None:
    """A config class with transformers 5's dict but without its rope_scaling alias."""
    config = V4(None)
    config.rope_parameters = {"rope_type": "yarn", "rope_theta": 5e6, **YARN}
    new = rotary(config, patched=True)
    assert (new.name, base(new)) == ("YaRNScalingRotaryEmbedding", 5e6)


def test_the_imported_helper_exists_where_the_patch_imports_it_from() -> None:
    module = imported(code(patched=True))["get_rope_config"]
    assert module == "sglang.srt.utils.hf_transformers_utils"
    # That module re-exports all of sglang.srt.utils.hf_transformers, whose __all__ has it.
    assert b'"get_rope_config"' in sources()[SHIM]
