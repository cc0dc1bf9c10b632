"""Stand-in for sglang-kernel, a CUDA-only wheel.

SGLang's CPU path uses torch wherever a kernel would serve; it only needs these names to be
importable. Calling one is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def missing(name: str) -> Callable[..., NoReturn]:
    """A function of that name which says that it is not there."""

    def call(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name}: the lab has no CUDA kernels")

    call.__name__ = name
    return call


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(name)
