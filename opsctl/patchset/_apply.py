"""Applying and un-applying a set in memory, strictly.

The target is pinned to the byte, so a hunk applies at the line that it states and with the
context that it states, or not at all. Where the same context lies elsewhere, the error says
where; moving the hunk there is the author's decision, never this program's.
"""

from __future__ import annotations

import difflib
import hashlib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from opsctl.errors import PatchError
from opsctl.patchset._load import FILES, PatchSet
from opsctl.patchset._parse import FileDiff, Hunk

_REFRESH = "refresh the patch against the pinned release: see docs/patch-sets.md"
_DRIFT = "the file is not what this patch set makes of it; look at it before going on"


def sha256(data: bytes | None) -> str | None:
    """Hex digest of a file's content; None for a file that is absent."""
    return None if data is None else hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class FileChange:
    """One file before and after the whole set; None stands for an absent file.

    `patches` names what touched it, in order: patches of the series, or its place in files/.
    """

    path: str
    before: bytes | None
    after: bytes | None
    patches: tuple[str, ...] = ()

    @property
    def before_sha256(self) -> str | None:
        return sha256(self.before)

    @property
    def after_sha256(self) -> str | None:
        return sha256(self.after)

    @property
    def added(self) -> int:
        return self._counts[0]

    @property
    def removed(self) -> int:
        return self._counts[1]

    @property
    def stat(self) -> str:
        """Lines added and removed, as in `+9 -1`."""
        added, removed = self._counts
        return f"+{added} -{removed}"

    @cached_property
    def _counts(self) -> tuple[int, int]:
        before, after = split_lines(self.before or b""), split_lines(self.after or b"")
        added = removed = 0
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if tag != "equal":
                removed += i2 - i1
                added += j2 - j1
        return added, removed


@dataclass(frozen=True, slots=True)
class Problem:
    """Python code that does not compile, and the patch that touched the file last."""

    path: str
    line: int
    message: str
    patch: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message} (last touched by {self.patch})"


def split_lines(data: bytes) -> list[bytes]:
    """Lines with their ends, split at \\n only: as diff does, and unlike bytes.splitlines."""
    parts = data.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def apply(patchset: PatchSet, sources: Mapping[str, bytes | None]) -> dict[str, FileChange]:
    """What the set makes of `sources`: the pristine contents of at least `patchset.paths`.

    Raises:
        PatchError: a hunk does not apply exactly, or a file that should be absent is there
            (or the other way round). Names patch, file, hunk and line.
    """
    return apply_first(patchset, sources, len(patchset.patches))


def apply_first(
    patchset: PatchSet, sources: Mapping[str, bytes | None], count: int
) -> dict[str, FileChange]:
    """As `apply`, for the new files and the first `count` patches of the series."""
    current = {path: sources.get(path) for path in patchset.paths}
    touched: dict[str, tuple[str, ...]] = dict.fromkeys(patchset.paths, ())
    for path, data in patchset.new_files.items():
        if current[path] is not None:
            raise PatchError(
                f"{patchset.label}: {FILES}/{path} is new, but {path} is already there",
                remedy="change an existing file with a patch, not through files/",
                code="patch_does_not_apply",
            )
        current[path] = data
        touched[path] = (f"{FILES}/{path}",)
    for patch in patchset.patches[:count]:
        for diff in patch.diffs:
            where = f"{patch.name}: {diff.path}"
            current[diff.path] = _apply_diff(diff, current[diff.path], where, _REFRESH)
            touched[diff.path] += (patch.name,)
    return {
        path: FileChange(path, sources.get(path), current[path], touched[path])
        for path in patchset.paths
        if touched[path]
    }


def unapply(patchset: PatchSet, contents: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    """The pristine contents, from those of `patchset.paths` with this set applied.

    Raises:
        PatchError: a content is not what this set leaves.
    """
    return {path: unapply_file(patchset, path, contents.get(path)) for path in patchset.paths}


def unapply_file(patchset: PatchSet, path: str, content: bytes | None) -> bytes | None:
    """As `unapply`, for one of the set's files.

    Raises:
        PatchError: the content is not what this set leaves.
    """
    if path in patchset.new_files:
        if content != patchset.new_files[path]:
            raise PatchError(
                f"{patchset.label}: {path} is not the module that the set brings",
                remedy=_DRIFT,
                code="patch_does_not_unapply",
            )
        return None
    for patch in reversed(patchset.patches):
        for diff in patch.diffs:
            if diff.path == path:
                where = f"{patchset.label}, un-applying {patch.name}: {path}"
                content = _apply_diff(diff.inverse(), content, where, _DRIFT)
    return content


def _apply_diff(diff: FileDiff, content: bytes | None, where: str, remedy: str) -> bytes | None:
    def refuse(problem: str) -> PatchError:
        return PatchError(f"{where}{problem}", remedy=remedy, code="patch_does_not_apply")

    if diff.kind == "add" and content is not None:
        raise refuse(" is to be created, but is already there")
    if diff.kind != "add" and content is None:
        raise refuse(" does not exist")
    source = split_lines(content or b"")
    result: list[bytes] = []
    done = 0
    for hunk in diff.hunks:
        start = _start(hunk.source_start, hunk.before)
        if source[start : start + len(hunk.before)] != hunk.before or start > len(source):
            raise refuse(_mismatch(hunk, source, start))
        result += source[done:start]
        result += hunk.after
        done = start + len(hunk.before)
    result += source[done:]
    if any(not line.endswith(b"\n") for line in result[:-1]):
        raise refuse(": a line without a newline would end up within the file")
    if diff.kind == "delete":
        if result:
            raise refuse(f" is to be deleted, but {len(result)} of its lines are not in the patch")
        return None
    return b"".join(result)


def _start(number: int, lines: Sequence[bytes]) -> int:
    """The index at which a hunk's side starts; an empty side names the line before it."""
    return number - 1 if lines else number


def _mismatch(hunk: Hunk, source: list[bytes], start: int) -> str:
    expected = hunk.before
    index = next(
        (
            i
            for i, line in enumerate(expected)
            if start + i >= len(source) or source[start + i] != line
        ),
        0,
    )
    line = start + index + 1
    found = _show(source[start + index]) if start + index < len(source) else "the end of the file"
    wanted = _show(expected[index]) if expected else "a line to insert after"
    return (
        f":{line}: hunk {hunk.number} does not apply\n"
        f"  expected {wanted}\n  found    {found}{_hint(hunk, source, start)}"
    )


def _hint(hunk: Hunk, source: list[bytes], start: int) -> str:
    target = _start(hunk.target_start, hunk.after)
    if hunk.after and source[target : target + len(hunk.after)] == hunk.after:
        return "\n  the change is already there: is the patch applied twice?"
    size = len(hunk.before)
    places = [i for i in range(len(source) - size + 1) if source[i : i + size] == hunk.before]
    if not size or not places:
        return ""
    nearest = min(places, key=lambda place: abs(place - start))
    return f"\n  would apply at line {nearest + 1}: refresh the patch"


def _show(line: bytes) -> str:
    text = line.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 160 else text[:157] + "...")


def compile_check(changes: Mapping[str, FileChange]) -> list[Problem]:
    """The Python files among `changes` that do not compile afterwards.

    Compiled by the Python that runs opsctl; syntax newer than the host's own passes here.
    """
    problems = []
    for change in changes.values():
        if change.after is None or not change.path.endswith(".py"):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an odd escape in SGLang is not our finding
                compile(change.after, change.path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            message = getattr(error, "msg", None) or str(error)
            patch = change.patches[-1] if change.patches else "nothing"
            problems.append(Problem(change.path, line, message, patch))
    return problems


def require_compiles(changes: Mapping[str, FileChange]) -> None:
    """Nothing, where all of `changes` compiles.

    Raises:
        PatchError: some of it does not; each file with line, message and patch.
    """
    problems = compile_check(changes)
    if problems:
        raise PatchError(
            "the patched code does not compile:\n"
            + "\n".join(f"  {problem}" for problem in problems),
            remedy="correct the named patch",
            code="patch_syntax_error",
        )


def diff(changes: Mapping[str, FileChange] | Iterable[FileChange]) -> str:
    """A unified diff of `changes` for display; bytes that are not UTF-8 are shown escaped."""
    items = changes.values() if isinstance(changes, Mapping) else changes
    return "".join(_diff_one(change) for change in items)


def _diff_one(change: FileChange) -> str:
    def text(data: bytes | None) -> list[str]:
        return [line.decode("utf-8", "backslashreplace") for line in split_lines(data or b"")]

    lines = difflib.unified_diff(
        text(change.before),
        text(change.after),
        "/dev/null" if change.before is None else f"a/{change.path}",
        "/dev/null" if change.after is None else f"b/{change.path}",
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
