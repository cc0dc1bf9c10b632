"""`opsctl patches check`: a set against the wheel it is pinned to, all of it in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from opsctl.errors import PatchError
from opsctl.patchset._apply import (
    FileChange,
    apply,
    apply_first,
    compile_check,
    require_compiles,
    sha256,
    unapply,
)
from opsctl.patchset._load import PatchSet, stray_patches
from opsctl.patchset.wheel import file_sha256, read_sources

Verdict = Literal["ok", "warn", "fail"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckItem:
    """One finding: a stable name, a verdict and one sentence."""

    name: str
    verdict: Verdict
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class CheckReport:
    """Everything found about one set; `changes` is empty where the set does not apply."""

    name: str
    version: str
    digest: str
    wheel: str
    items: tuple[CheckItem, ...]
    changes: Mapping[str, FileChange] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """No item failed; warnings are allowed."""
        return not self.failures

    @property
    def failures(self) -> tuple[CheckItem, ...]:
        return tuple(item for item in self.items if item.verdict == "fail")

    def raise_for_failures(self) -> None:
        """Nothing, where the check passed.

        Raises:
            PatchError: with every failed item.
        """
        if self.failures:
            raise PatchError(
                f"the patch set {self.name} {self.version} is not fit to deploy:\n"
                + "\n".join(item.message for item in self.failures),
                remedy=self.failures[0].remedy,
                code="patch_check_failed",
            )


def check(patchset: PatchSet, wheel: Path) -> CheckReport:
    """Every check of `patchset` against `wheel`, a file of one of its pinned names.

    Findings are items of the report; nothing is raised for them. A step that needs an
    earlier one's result is left out where that failed.
    """
    items = _headers(patchset)
    _try(items, "series", lambda: (_series(patchset), True))
    pinned = _try(items, "wheel", lambda: (_pinned(patchset, wheel), True))
    sources = _try(items, "preimages", lambda: _preimages(patchset, wheel)) if pinned else None
    changes = None
    if sources is not None:
        changes = _try(items, "apply", lambda: _applies(patchset, sources))
    if sources is not None and changes is not None:
        _try(items, "compile", lambda: (_compiles(changes), True))
        items += _intermediate(patchset, sources)
        _try(items, "unapply", lambda: (_returns(patchset, sources, changes), True))
    return CheckReport(
        name=patchset.name,
        version=patchset.version,
        digest=patchset.digest,
        wheel=wheel.name,
        items=tuple(items),
        changes=changes or {},
    )


def _try(items: list[CheckItem], name: str, step: Callable[[], tuple[str, T]]) -> T | None:
    """The step's result, its message noted; None where it raised, the error noted."""
    try:
        message, result = step()
    except PatchError as error:
        items.append(CheckItem(name, "fail", error.message, error.remedy))
        return None
    items.append(CheckItem(name, "ok", message))
    return result


def _headers(patchset: PatchSet) -> list[CheckItem]:
    advice = [
        CheckItem("headers", "warn", f"{patch.name}: {text}", "add or correct the DEP-3 header")
        for patch in patchset.patches
        for text in patch.dep3.advice()
    ]
    # Loading the set has refused what DEP-3 requires and was missing.
    return advice or [CheckItem("headers", "ok", "every patch has its DEP-3 headers")]


def _series(patchset: PatchSet) -> str:
    strays = stray_patches(patchset)
    if strays:
        raise PatchError(
            f"{patchset.dir / strays[0]} is not in series"
            + (f", nor {len(strays) - 1} more" if strays[1:] else ""),
            remedy="list it in series, or remove it",
        )
    return "series and folder agree"


def _pinned(patchset: PatchSet, wheel: Path) -> str:
    pins = {pin.filename: pin.sha256 for pin in patchset.target.wheels}
    if wheel.name not in pins:
        raise PatchError(
            f"{wheel.name} is none of the set's wheels: {', '.join(pins)}",
            remedy="let opsctl fetch the wheel, or pin this one in patchset.yaml",
        )
    try:
        found = file_sha256(wheel)
    except OSError as error:
        raise PatchError(
            f"cannot read {wheel}: {error.strerror}", remedy="let opsctl fetch the wheel"
        ) from None
    if found != pins[wheel.name]:
        raise PatchError(
            f"{wheel} has SHA-256 {found}, not the pinned {pins[wheel.name]}",
            remedy="remove the file and fetch it again",
        )
    return f"{wheel.name} has its pinned SHA-256"


def _preimages(patchset: PatchSet, wheel: Path) -> tuple[str, dict[str, bytes | None]]:
    sources, record = read_sources(wheel, patchset.target.package, patchset.paths)
    for path, content in sources.items():
        if sha256(content) != record.get(path):
            raise PatchError(
                f"{path} in the wheel is not what the wheel's RECORD says",
                remedy="this release's wheel contradicts itself; report it to its authors",
            )
    return "every file to be touched has the hash of the wheel's RECORD", sources


def _applies(
    patchset: PatchSet, sources: Mapping[str, bytes | None]
) -> tuple[str, dict[str, FileChange]]:
    changes = apply(patchset, sources)
    files = ", ".join(f"{change.path} ({change.stat})" for change in changes.values())
    return f"the series applies exactly: {files}", changes


def _compiles(changes: Mapping[str, FileChange]) -> str:
    require_compiles(changes)
    return "every touched file compiles"


def _intermediate(patchset: PatchSet, sources: Mapping[str, bytes | None]) -> list[CheckItem]:
    """States between patches that do not compile: awkward to bisect, but never deployed."""
    found = []
    for count in range(len(patchset.patches)):
        for problem in compile_check(apply_first(patchset, sources, count)):
            after = patchset.patches[count - 1].name if count else "files/ alone"
            found.append(
                CheckItem(
                    "intermediate",
                    "warn",
                    f"after {after} the tree does not compile: {problem}",
                    "move the change that completes it into the same patch",
                )
            )
    return found


def _returns(
    patchset: PatchSet,
    sources: Mapping[str, bytes | None],
    changes: Mapping[str, FileChange],
) -> str:
    restored = unapply(patchset, {path: change.after for path, change in changes.items()})
    for path, content in restored.items():
        if content != sources[path]:
            raise PatchError(
                f"{path} does not return to its pristine content",
                remedy="this is a defect of opsctl, not of the set; please report it",
            )
    return "un-applying returns every file to the byte"
