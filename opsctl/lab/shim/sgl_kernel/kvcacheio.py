"""The submodule of that name, likewise without its kernels."""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from sgl_kernel import missing


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(f"kvcacheio.{name}")
