"""DEP-3 headers: what a patch says of itself. https://dep-team.pages.debian.net/deps/dep3/"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsctl.errors import PatchError

_FIELD = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9-]*):[ \t]*(?P<value>.*)")
_KNOWN = {
    "description", "subject", "origin", "bug", "forwarded", "author", "from",
    "reviewed-by", "acked-by", "last-update", "applied-upstream",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dep3:
    """The headers of one patch. Field names are kept as written, found without case."""

    fields: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """The value of a field, its further lines unfolded with newlines; "" where absent."""
        wanted = name.casefold()
        return next((v for k, v in self.fields.items() if k.casefold() == wanted), "")

    @property
    def description(self) -> str:
        return self.get("Description") or self.get("Subject")

    @property
    def synopsis(self) -> str:
        """The first line of the description."""
        return self.description.split("\n", 1)[0].strip()

    def advice(self) -> list[str]:
        """What a careful patch would also say; none of it stops the patch from applying."""
        found = [
            f"no {name} header"
            for name in ("Forwarded", "Last-Update")
            if not self.get(name).strip()
        ]
        for name in self.fields:
            lower = name.casefold()
            if lower not in _KNOWN and not lower.startswith(("bug-", "x-")):
                found.append(f"unknown header {name}")
        return found


def parse(lines: Sequence[str], where: str) -> Dep3:
    """The headers in `lines`, the first lines of the file `where` up to its first diff.

    Raises:
        PatchError: a line is no header, Description has no synopsis, neither Origin nor
            Author is given, or Last-Update is no date.
    """
    fields = _fields(lines, where)
    dep3 = Dep3(fields)
    if not dep3.synopsis:
        raise _wrong(f"{where}: no Description header with a one-line synopsis")
    if not any(dep3.get(name).strip() for name in ("Origin", "Author", "From")):
        raise _wrong(f"{where}: neither an Origin nor an Author header")
    updated = dep3.get("Last-Update").strip()
    if updated:
        try:
            datetime.date.fromisoformat(updated)
        except ValueError:
            raise _wrong(f"{where}: Last-Update is not a date YYYY-MM-DD: {updated!r}") from None
    return dep3


def _fields(lines: Sequence[str], where: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    current = ""
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r\n")
        if not line.strip() or line.startswith("#"):
            # A blank line ends a field; a folded one is written " ." as in DEP-3.
            current = "" if not line.strip() else current
        elif line[0] in " \t":
            if not current:
                raise _wrong(f"{where}:{number}: text that continues no header: {line.strip()!r}")
            text = line[1:].rstrip()
            fields[current] += "\n" + ("" if text.strip() == "." else text)
        elif match := _FIELD.fullmatch(line):
            current = match["name"]
            if any(current.casefold() == name.casefold() for name in fields):
                raise _wrong(f"{where}:{number}: the header {current} is given twice")
            fields[current] = match["value"].rstrip()
        else:
            raise _wrong(f"{where}:{number}: neither a DEP-3 header nor a diff: {line!r}")
    return fields


def _wrong(message: str) -> PatchError:
    return PatchError(
        message,
        remedy="start the patch with DEP-3 headers (Description, Origin or Author, Forwarded, "
        "Last-Update) and a line '---': see docs/patch-sets.md",
        code="patch_header_invalid",
    )
