"""The pinned wheel's package with the set applied, written to a folder.

    python tests/ddtree/patched.py OUT [--without 0008] [--wheel FILE]

OUT/sglang is then what a host has after a deploy; put OUT first on PYTHONPATH. `--without`
leaves out the patches whose names start so.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PATCHES = REPOSITORY / "patches"
RELEASE = ("ddtree", "sglang", "0.5.12.post1")


def write(out: Path, *, without: Sequence[str] = (), wheel: Path | None = None) -> Path:
    """Write the patched package below `out` and return `out`."""
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    from opsctl.patchset import apply, fetch, find, read_sources

    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "patches"
        shutil.copytree(PATCHES, root)
        if without:
            name, distribution, version = RELEASE
            _drop(root / f"{distribution}-{version}" / name, without)
        patchset = find(root, *RELEASE)
        wheel = wheel or fetch(patchset)
        sources, _ = read_sources(wheel, "sglang", patchset.paths)
        changes = apply(patchset, sources)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("sglang/"):
                archive.extract(name, out)
    for path, change in changes.items():
        target = out / "sglang" / path
        if change.after is None:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(change.after)
    return out


def _drop(folder: Path, prefixes: Sequence[str]) -> None:
    series = folder / "series"
    kept = []
    for line in series.read_text(encoding="utf-8").splitlines():
        if line.startswith(tuple(prefixes)):
            (folder / line.split()[0]).unlink()
        else:
            kept.append(line)
    series.write_text("\n".join(kept) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--wheel", type=Path)
    args = parser.parse_args()
    write(args.out, without=args.without, wheel=args.wheel)


if __name__ == "__main__":
    main()
