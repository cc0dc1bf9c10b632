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
from opsctl.patchset.check import CheckItem, CheckReport, check
from opsctl.patchset.classify import FileState, classify
from opsctl.patchset.load import PatchSet, discover, find, load
from opsctl.patchset.manifest import Needs, Target, WheelPin
from opsctl.patchset.parse import FileDiff, Hunk, Patch
from opsctl.patchset.wheel import default_cache, fetch, read_sources, record_sha256

__all__ = [
    "Bundle",
    "BundleFile",
    "CheckItem",
    "CheckReport",
    "FileChange",
    "FileDiff",
    "FileState",
    "Hunk",
    "Needs",
    "Patch",
    "PatchSet",
    "Problem",
    "Target",
    "WheelPin",
    "apply",
    "bundle",
    "check",
    "classify",
    "compile_check",
    "default_cache",
    "diff",
    "discover",
    "fetch",
    "find",
    "load",
    "read_sources",
    "record_sha256",
    "require_compiles",
    "sha256",
    "unapply",
]
