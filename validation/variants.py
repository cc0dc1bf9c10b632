"""The patched files of a set, whole and without its CUDA-graph patch, for a host without opsctl.

    python variants.py PATCH_SET_FOLDER OUT     writes OUT/whole and OUT/without-graph

Laid over a copy of the wheel's `sglang` folder they make the two packages that `run.py` takes.
Needs opsctl's environment; the wheel is fetched by its pinned hash.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from opsctl import patchset

GRAPH_PATCH = "ddtree-cuda-graph-width"


def write(found: patchset.PatchSet, folder: Path) -> None:
    """The content of every file that `found` touches, below `folder`."""
    wheel = patchset.fetch(found)
    sources, _ = patchset.read_sources(wheel, found.target.package, found.paths)
    for change in patchset.apply(found, sources).values():
        if change.after is not None:
            path = folder / change.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(change.after)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("set", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    whole = patchset.load(arguments.set)
    kept = tuple(patch for patch in whole.patches if GRAPH_PATCH not in patch.name)
    if len(kept) != len(whole.patches) - 1:
        raise SystemExit(f"{arguments.set} has no patch named {GRAPH_PATCH}")
    write(whole, arguments.out / "whole")
    write(dataclasses.replace(whole, patches=kept), arguments.out / "without-graph")


if __name__ == "__main__":
    main()
