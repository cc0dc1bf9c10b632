"""Patch sets: read, check, apply in memory, and bundle with every hash. See docs/patch-sets.md.

Everything is pure but for reading a set's folder and, in `wheel`, the wheel and pip.
"""

from opsctl.patchset._apply import (
    FileChange,
    Problem,
    apply,
    compile_check,
    diff,
    require_compiles,
    sha256,
    unapply,
    unapply_file,
)
from opsctl.patchset._bundle import Bundle, BundleFile, bundle
from opsctl.patchset._check import CheckItem, CheckReport, check
from opsctl.patchset._load import PatchSet, discover, find, load
from opsctl.patchset._manifest import Needs, Target, WheelPin
from opsctl.patchset._parse import FileDiff, Hunk, Patch
from opsctl.patchset.signing import SIGNATURE, Signed, Signer, sign, verify
from opsctl.patchset.wheel import default_cache, fetch, read_sources, record_sha256

__all__ = [
    "SIGNATURE",
    "Bundle",
    "BundleFile",
    "CheckItem",
    "CheckReport",
    "FileChange",
    "FileDiff",
    "Hunk",
    "Needs",
    "Patch",
    "PatchSet",
    "Problem",
    "Signed",
    "Signer",
    "Target",
    "WheelPin",
    "apply",
    "bundle",
    "check",
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
    "sign",
    "unapply",
    "unapply_file",
    "verify",
]
