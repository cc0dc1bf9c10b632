"""Stand-in for torchvision, which PyPI has as a CUDA build only.

SGLang and transformers import a few names of it at their own import; a server of text models
calls none of them. Calling one is an error.
"""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


def missing(name: str) -> Callable[..., NoReturn]:
    """A function of that name which says that it is not there."""

    def call(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"torchvision {name}: the lab has no torchvision")

    call.__name__ = name
    return call


def names_of(module: str) -> Callable[[str], Callable[..., NoReturn]]:
    """A ``__getattr__`` for `module`: every name is there, and none of them works."""

    def getattribute(name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(name)
        return missing(f"{module}.{name}")

    return getattribute


__getattr__ = names_of(__name__)
