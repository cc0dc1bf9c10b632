"""The sources of released SGLang wheels, read with `ast`; nothing of them is imported."""

from __future__ import annotations

import ast
import functools
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

from opsctl.errors import Refused
from opsctl.patchset._manifest import Target, WheelPin
from opsctl.patchset.wheel import fetch_pin

# By release: the file of one wheel (they differ in compiled parts only) and its SHA-256.
PINS = {
    "0.5.10.post1": (
        "sglang-0.5.10.post1-py3-none-any.whl",
        "a854a68b11caf6b4b55c241a44378a7cdede7ede325db85c955f131506703bc6",
    ),
    "0.5.11": (
        "sglang-0.5.11-cp311-cp311-manylinux_2_34_x86_64.whl",
        "fe0748beaff218d3e16c9018a5e19f018db06fc3c7ac4f90d2f93da1cf074b6f",
    ),
    "0.5.12.post1": (
        "sglang-0.5.12.post1-cp311-cp311-manylinux_2_34_x86_64.whl",
        "94b3f3cc6b97f1364f247b8d9c1d106ec63cf22c55d6b65bc40ff29b0206ef5f",
    ),
    "0.5.23": (
        "sglang-0.5.23-cp311-cp311-manylinux_2_34_x86_64.whl",
        "00b3cd5b265ac76c64185fbb6b95424f324ddd9f428d0306b77bc9db9d859937",
    ),
}
_PERCENT = re.compile(r"%(?:\.\d+)?[sdfr]")


def wheel(version: str) -> Path:
    """From the user's cache, else downloaded (6 to 39 MB); asked for once.

    Raises:
        Refused: no index has it, or none can be reached.
    """
    found = _fetched(version)
    if isinstance(found, Refused):
        raise found
    return found


@functools.cache
def _fetched(version: str) -> Path | Refused:
    filename, sha256 = PINS[version]
    pin = WheelPin(filename=filename, sha256=sha256)
    target = Target(distribution="sglang", version=version, package="sglang", wheels=(pin,))
    try:
        return fetch_pin(target, pin)
    except Refused as error:
        return error


@dataclass(frozen=True)
class Source:
    """One module of a wheel. Texts have `{}` where a value goes, f-string or %-format."""

    tree: ast.Module

    @functools.cached_property
    def texts(self) -> frozenset[str]:
        found: set[str] = set()
        parts: set[int] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.JoinedStr):
                parts.update(map(id, node.values))
                found.add("".join(map(_part, node.values)))
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in parts
            ):
                found.add(_PERCENT.sub("{}", node.value))
        return frozenset(found)

    @functools.cached_property
    def routes(self) -> frozenset[str]:
        """The first arguments of app.get, app.post, app.api_route and Mount."""
        return frozenset(
            node.args[0].value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call)
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
            and _called(node.func) in {"get", "post", "api_route", "Mount"}
        )

    def keys_set(self, *mappings: str) -> frozenset[str]:
        """K of every assignment `mapping["K"] = ...`."""
        return frozenset(
            node.slice.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id in mappings
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        )

    def keywords(self, name: str) -> frozenset[str]:
        """The texts given as the keyword argument `name`."""
        return frozenset(
            node.value.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.keyword)
            and node.arg == name
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )

    def assigned(self, function: str, name: str) -> list[str]:
        """What a function assigns to the variable `name`, as source text, in order."""
        (body,) = (
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef) and node.name == function
        )
        return [
            ast.unparse(node.value)
            for node in ast.walk(body)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
        ]


@functools.cache
def source(version: str, file: str) -> Source:
    """`file` is below the package. KeyError if the wheel lacks it."""
    with zipfile.ZipFile(wheel(version)) as archive:
        data = archive.read(f"sglang/{file}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their own, such as an invalid escape
        return Source(ast.parse(data))


def _part(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "{}"


def _called(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""
