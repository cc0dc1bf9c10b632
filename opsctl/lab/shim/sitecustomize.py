"""Let PyPI's torchvision (a CUDA build) be imported beside a CPU build of torch.

Its compiled operators cannot load here, and its Python code then fails on
``register_fake("torchvision::nms")``. Declaring those operators' schemas is enough: nothing
in a server of text models calls them.
"""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class _DeclareTorchvisionOperators(importlib.abc.MetaPathFinder):
    """Finds nothing; being asked for the module that registers them is the moment to act."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision._meta_registrations":
            import torch

            for operator in ("nms", "qnms"):
                if not hasattr(torch.ops.torchvision, operator):
                    torch.library.define(f"torchvision::{operator}", _SCHEMA)
        return None


sys.meta_path.insert(0, _DeclareTorchvisionOperators())
