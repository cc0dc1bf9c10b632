"""What a settled host must be: files, state folder and server of one version."""

from __future__ import annotations

from typing import Any

from light_lab import LightLab, Mixture
from light_package import VERSIONS, hashes


def faults_of(
    light: LightLab, found: dict[str, Any], served: dict[str, int] | None
) -> tuple[int | None, list[str]]:
    """The version that disk, state and server agree on, and everything that is wrong."""
    wrong: list[str] = []
    version = light.version_of(found["files"])
    if version is None:
        wrong.append(f"the files are of no one version: {_odd(found['files'])}")
    try:
        if served is None:
            wrong.append("nothing is served")
        elif light.whole(served) != version:
            wrong.append(f"version {light.whole(served)} is served, {version} is on disk")
    except Mixture as error:
        wrong.append(str(error))
    wrong += _state_faults(found, version, light.unrecorded)
    if found["beside"] != sorted(light.beside):
        odd = set(found["beside"]) ^ set(light.beside)
        wrong.append(f"beside the package there are {odd}")
    if (found["unit"].get("ActiveState"), found["unit"].get("SubState")) != ("active", "running"):
        wrong.append(f"the unit is {found['unit']}")
    return version, wrong


def _odd(files: dict[str, str]) -> str:
    known = {d: (p, v) for v in range(VERSIONS) for p, d in hashes(v).items()}
    kinds: dict[str, int] = {}
    for path, digest in files.items():
        name, version = known.get(digest, ("", None))
        key = str(version) if name == path else f"{path}?"
        kinds[key] = kinds.get(key, 0) + 1
    return str(kinds)


_STATE_FILES = frozenset(
    {"lock", "current", "loads.jsonl", "audit.jsonl", "guard.py", "guard-report.json"}
)


def _state_faults(found: dict[str, Any], version: int | None, unrecorded: set[str]) -> list[str]:
    wrong = []
    for path in found["state"]:
        folder, _, name = path.rpartition("/")
        kept = folder == "generations" and name.endswith(".json")
        if path not in _STATE_FILES and not kept:
            wrong.append(f"in the state folder there is {path}")
    if found["locked"]:
        wrong.append("the lock is held")
    return wrong + _current_faults(found, version, unrecorded) + _store_faults(found)


def _current_faults(found: dict[str, Any], version: int | None, unrecorded: set[str]) -> list[str]:
    generations, current = found["generations"], (found["current"] or "").strip()
    if not current:
        if version == 0 and not set(generations) - {"0"}:
            return []
        return [f"no current generation, {sorted(generations)} are recorded"]
    if current not in generations:
        return [f"current names {current!r}"]
    wrong = []
    generation = generations[current]
    odd = [p for p, f in generation["files"].items() if found["files"].get(p) != f["sha256"]]
    if odd:
        wrong.append(f"not as generation {current} has them: {odd}")
    if generation["status"] in ("staged", "abandoned") and current not in unrecorded:
        wrong.append(f"generation {current} in place is {generation['status']}")
    return wrong


def _store_faults(found: dict[str, Any]) -> list[str]:
    objects = found["objects"]
    wrong = [f"a stray or damaged content: {n}" for n, digest in objects.items() if n != digest]
    for number, generation in found["generations"].items():
        named = {d for file in generation["files"].values() for d in file.values() if d}
        wrong += [f"generation {number} lost {digest}" for digest in named - set(objects)]
    return wrong
