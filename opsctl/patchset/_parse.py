"""One patch file: its DEP-3 headers and its diffs, read with `unidiff`.

`unidiff` takes a lenient view: a line that belongs to no hunk is information, a git header
outranks the `---` line below it, a rename is a file. What opsctl applies must be all of what
a reader sees in the file, so whatever is left over here is refused, with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from unidiff import patch as unidiff
from unidiff.errors import UnidiffParseError

from opsctl.errors import PatchError
from opsctl.hostside.held import PREFIX
from opsctl.patchset._dep3 import Dep3
from opsctl.patchset._dep3 import parse as parse_dep3

Tag = Literal[" ", "+", "-"]
Kind = Literal["modify", "add", "delete"]

_NULL = "/dev/null"
_STARTS_DIFF = ("diff --git ", "--- ", "Index: ")
# Lines between hunks that say nothing about content.
_HARMLESS = re.compile(
    r"diff --git .*|index [0-9a-f]+\.\.[0-9a-f]+( 100644)?|(new|deleted) file mode 100644"
    r"|Index: .*|=+|@@ -.*|\\ No newline at end of file|\s*"
)
_UNSUPPORTED = (
    (re.compile(r"(rename|copy) (from|to) |(dis)?similarity index "), "a rename or copy"),
    (re.compile(r"(old|new) mode |(new|deleted) file mode |index .* \d{6}$"), "a file mode"),
    (re.compile(r"GIT binary patch|Binary files? "), "a binary change"),
)


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk. Line numbers count from 1; `lines` hold their exact bytes, newline included."""

    number: int
    source_start: int
    target_start: int
    lines: tuple[tuple[Tag, bytes], ...]

    @property
    def before(self) -> list[bytes]:
        return [text for tag, text in self.lines if tag != "+"]

    @property
    def after(self) -> list[bytes]:
        return [text for tag, text in self.lines if tag != "-"]

    def inverse(self) -> Hunk:
        swap: dict[Tag, Tag] = {" ": " ", "+": "-", "-": "+"}
        return Hunk(
            self.number,
            self.target_start,
            self.source_start,
            tuple((swap[tag], text) for tag, text in self.lines),
        )


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What one patch does to one file; `path` is relative to the package's folder."""

    path: str
    kind: Kind
    hunks: tuple[Hunk, ...]

    def inverse(self) -> FileDiff:
        swap: dict[Kind, Kind] = {"modify": "modify", "add": "delete", "delete": "add"}
        return FileDiff(self.path, swap[self.kind], tuple(h.inverse() for h in self.hunks))


@dataclass(frozen=True, slots=True)
class Patch:
    """One entry of the series."""

    name: str
    dep3: Dep3
    diffs: tuple[FileDiff, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(diff.path for diff in self.diffs)


def parse_patch(name: str, data: bytes, where: str) -> Patch:
    """The patch `name` from the bytes of the file `where`.

    Raises:
        PatchError: its headers or diffs are malformed, or do what opsctl does not support
            (renames, copies, modes, binary changes); the message names file and line.
    """
    # Surrogate escapes carry bytes that are not UTF-8 through `unidiff`, which wants text.
    text = data.decode("utf-8", "surrogateescape")
    lines = [line for line in re.split(r"(?<=\n)", text) if line]
    if not lines or not lines[-1].endswith("\n"):
        raise _wrong(f"{where}: empty, or cut off within its last line")
    start = next((i for i, line in enumerate(lines) if line.startswith(_STARTS_DIFF)), len(lines))
    # A line '---' ends the headers; text up to the first diff, such as a diffstat, is free.
    end = next((i for i, line in enumerate(lines[:start]) if line.rstrip() == "---"), start)
    dep3 = parse_dep3(lines[:end], where)
    for number, line in enumerate(lines[end:start], end + 1):
        if any(pattern.match(line) for pattern, _ in _UNSUPPORTED) or line.startswith("@@ "):
            raise _unsupported(line.rstrip(), f"{where}:{number}")
    if start == len(lines):
        raise _wrong(f"{where}: no diff after the headers")
    diffs = _diffs(lines[start:], start, where)
    return Patch(name, dep3, diffs)


def _diffs(lines: list[str], offset: int, where: str) -> tuple[FileDiff, ...]:
    position = 0

    def counted() -> Iterator[str]:
        nonlocal position
        for position, line in enumerate(lines, 1):  # noqa: B007 - read by the handler below
            yield line

    try:
        parsed = unidiff.PatchSet(counted())
    except UnidiffParseError as error:
        message = str(error).strip()
        raise _wrong(f"{where}:{offset + position}: {message}") from None
    in_hunks = {
        line.diff_line_no for file in parsed for hunk in file for line in hunk if line.diff_line_no
    }
    _nothing_left_over(lines, in_hunks, offset, where)
    diffs = tuple(_file_diff(file, where) for file in parsed)
    paths = [diff.path for diff in diffs]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise _wrong(f"{where}: {twice} has two diffs in one patch")
    return diffs


def _nothing_left_over(lines: list[str], in_hunks: set[int], offset: int, where: str) -> None:
    source: str | None = None
    for number, raw in enumerate(lines, 1):
        line, at = raw.rstrip("\n"), f"{where}:{offset + number}"
        if number in in_hunks:
            continue
        if line.rstrip() == "--":  # git format-patch signs off with its own version
            rest = [text for text in lines[number:] if text.strip()]
            if len(rest) <= 1:
                return
        if line.startswith("--- "):
            source = line[4:].partition("\t")[0]
        elif line.startswith("+++ "):
            _same_file(source, line[4:].partition("\t")[0], at)
        elif not _HARMLESS.fullmatch(line):
            raise _unsupported(line, at)


def _same_file(source: str | None, target: str, at: str) -> None:
    if source is None:
        raise _wrong(f"{at}: +++ without --- before it")
    if _NULL not in {source, target} and _strip(source, at) != _strip(target, at):
        raise _wrong(f"{at}: --- {source} and +++ {target} are two files: a rename")


def _unsupported(line: str, at: str) -> PatchError:
    for pattern, what in _UNSUPPORTED:
        if pattern.match(line):
            return PatchError(
                f"{at}: {what} is not supported: {line}",
                remedy="a patch set changes the text of files; add a whole new file under files/",
                code="patch_unsupported",
            )
    return _wrong(f"{at}: this line belongs to no hunk: {line!r}; are the hunk's counts right?")


def _file_diff(file: unidiff.PatchedFile, where: str) -> FileDiff:
    source, target = str(file.source_file), str(file.target_file)
    kind: Kind = "add" if source == _NULL else "delete" if target == _NULL else "modify"
    path = _strip(target if kind == "add" else source, where)
    hunks = tuple(_hunk(hunk, number) for number, hunk in enumerate(file, 1))
    if kind == "modify" and not hunks:
        raise _wrong(f"{where}: {path} is named but not changed")
    grown = end = 0
    for hunk in hunks:
        at, out = _index(hunk.source_start, hunk.before), _index(hunk.target_start, hunk.after)
        if at < end or out != at + grown:
            raise _wrong(
                f"{where}: {path}, hunk {hunk.number}: its line numbers contradict the hunks "
                "before it"
            )
        end = at + len(hunk.before)
        grown += len(hunk.after) - len(hunk.before)
    return FileDiff(path, kind, hunks)


def _index(start: int, lines: list[bytes]) -> int:
    """The index of a hunk's first line: an empty side names the line before it."""
    return start - 1 if lines else start


def _hunk(hunk: unidiff.Hunk, number: int) -> Hunk:
    lines: list[tuple[Tag, bytes]] = []
    for line in hunk:
        value = line.value.encode("utf-8", "surrogateescape")
        if line.is_added:
            lines.append(("+", value))
        elif line.is_removed:
            lines.append(("-", value))
        elif line.is_context:
            lines.append((" ", value))
        elif line.line_type == "\\" and lines:
            tag, text = lines[-1]
            lines[-1] = (tag, text.removesuffix(b"\n"))
        # What is left is a blank line after the hunk, which unidiff hangs on to it.
    return Hunk(number, hunk.source_start, hunk.target_start, tuple(lines))


def _strip(name: str, where: str) -> str:
    """`a/srt/x.py` as `srt/x.py` (-p1), and only if it stays inside the package."""
    first, _, path = name.partition("/")
    if name.startswith('"') or not first or not is_inside(path):
        raise _wrong(
            f"{where}: {name!r} is not a path such as a/srt/models/x.py, -p1 relative to the "
            "package's folder"
        )
    return path


def is_inside(path: str) -> bool:
    """Whether `path` is a plain relative path that cannot leave the package's folder, and has no
    name that opsctl keeps for its own files there."""
    parts = path.split("/")
    return (
        PurePosixPath(path).as_posix() == path
        and not {"", ".", ".."} & set(parts)
        and "\\" not in path
        and path.isprintable()
        and not any(part.startswith(PREFIX) for part in parts)
    )


def _wrong(message: str) -> PatchError:
    return PatchError(
        message,
        remedy="regenerate the patch with `diff -u` or `git diff`: see docs/patch-sets.md",
        code="patch_malformed",
    )
