"""Patch sets: read, check, apply in memory, and bundle with every hash. See docs/patch-sets.md."""

from opsctl.patchset.apply import (
    FileChange,
    Problem,
    apply,
    compile_check,
    diff,
    require_compiles,
    sha256,
    unapply,
)
from opsctl.patchset.bundle import Bundle, BundleFile, bundle
from opsctl.patchset.load import PatchSet, discover, find, load
from opsctl.patchset.manifest import Needs, Target, WheelPin
from opsctl.patchset.parse import FileDiff, Hunk, Patch

__all__ = [
    "Bundle",
    "BundleFile",
    "FileChange",
    "FileDiff",
    "Hunk",
    "Needs",
    "Patch",
    "PatchSet",
    "Problem",
    "Target",
    "WheelPin",
    "apply",
    "bundle",
    "compile_check",
    "diff",
    "discover",
    "find",
    "load",
    "require_compiles",
    "sha256",
    "unapply",
]
