"""One command in a container of the lab's tree, which is gone afterwards."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from opsctl.events import Emit, ignore
from opsctl.lab import launch, needs, recipe, tree


def run_once(
    name: str,
    command: Sequence[str],
    *,
    read_only: Mapping[Path, str],
    writable: Mapping[Path, str] | None = None,
    environment: Mapping[str, str] | None = None,
    working_folder: str = "/root",
    disk: str = "1g",
    emit: Emit = ignore,
) -> int:
    """Run `command` there and return its exit status; its output is this process's.

    `read_only` and `writable` are folders of this machine and their places inside; `disk` bounds
    what is written elsewhere, which lies in memory and is lost. The container shares this
    machine's network. `{python}` in `command` is the Python of the lab's SGLang.

    Raises:
        LabUnavailable: this machine cannot hold a lab, or the tree cannot be built.
    """
    needs.require()
    built = recipe.current()
    root = tree.ensure(built, emit)
    nspawn = [
        *launch.NSPAWN,
        "--as-pid2",
        "--pipe",
        f"--machine={name}",
        f"--chdir={working_folder}",
    ]
    nspawn += [f"--bind-ro={source}:{place}" for source, place in read_only.items()]
    nspawn += [f"--bind={source}:{place}" for source, place in (writable or {}).items()]
    settings = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
    nspawn += [f"--setenv={key}={value}" for key, value in settings.items()]
    nspawn += [word.replace("{python}", f"{built.venv}/bin/python") for word in command]
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        area = Path(folder)
        spec = {"tree": str(root), "overlay": str(area / "disk"), "size": disk, "nspawn": nspawn}
        argv = launch.command(name, area / "spec.json", spec)
        with tree.hold(root):
            return subprocess.run(argv, check=False).returncode
