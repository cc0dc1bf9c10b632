"""What a deploy would do: compare the host's files with the set, changing nothing."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from opsctl import patchset as ps
from opsctl.errors import PatchError, Refused
from opsctl.rollout import drift, unitplan
from opsctl.rollout.drift import changed_files
from opsctl.rollout.session import Session
from opsctl.rollout.unitplan import UnitChange


@dataclass(frozen=True, slots=True)
class Plan:
    """A set against a host. `contents` and `target` are what `stage` on the host takes."""

    patchset: ps.PatchSet
    facts: Mapping[str, Any]
    installed: Mapping[str, Any] | None  # the set on the host now, {name, version, digest}
    changes: tuple[ps.FileChange, ...]  # from the host's files now to the set's
    new_patches: tuple[str, ...]
    seen: Mapping[str, Mapping[str, str | None]]
    target: Mapping[str, Any]
    contents: Mapping[str, str]
    adopted: tuple[str, ...] = ()  # files changed by hand, to be kept as what was found
    unit: tuple[UnitChange, ...] = ()  # the unit's files that are not the inventory's
    with_unit: bool = False  # whether the deploy makes them so
    signer: ps.Signer | None = None  # who vouches for the set, where the inventory asks for it

    @property
    def noop(self) -> bool:
        """The host has exactly this set already, and the unit if that is wanted."""
        return not self.changes and not self.unit_changes and not self.facts["swap"]

    @property
    def unit_changes(self) -> tuple[UnitChange, ...]:
        """What the deploy changes of the unit's files."""
        return self.unit if self.with_unit else ()

    @property
    def diff(self) -> str:
        return ps.diff({change.path: change for change in self.changes})

    def to_json(self) -> dict[str, Any]:
        install = self.facts["install"]
        return {
            "noop": self.noop,
            "set": describe(self.patchset),
            "signed": asdict(self.signer) if self.signer is not None else None,
            "installed": dict(self.installed) if self.installed else None,
            "adopted": list(self.adopted),
            "distribution": self.patchset.target.distribution,
            "distribution_version": install["version"],
            "package_dir": install["package_dir"],
            "patches": [patch.name for patch in self.patchset.patches],
            "new_patches": list(self.new_patches),
            "restart_needed": not self.noop and self.patchset.restart,
            "files": [
                {
                    "path": change.path,
                    "before_sha256": change.before_sha256,
                    "after_sha256": change.after_sha256,
                    "added": change.added,
                    "removed": change.removed,
                }
                for change in self.changes
            ],
            "diff": self.diff,
            "unit": {
                "applies": self.with_unit,
                "files": [change.to_json() for change in self.unit],
            },
            "last_loads_s": self.facts["loads"],
        }


def describe(patchset: ps.PatchSet) -> dict[str, Any]:
    """A set by name, version and content, as generations record it."""
    return {"name": patchset.name, "version": patchset.version, "digest": patchset.digest}


def find_patchset(
    session: Session, root: Path, name: str | None, facts: Mapping[str, Any]
) -> tuple[ps.PatchSet, ps.Signer | None]:
    """The set to deploy, for the version that the host has by `facts`, its `inspect`; and who
    vouches for it, None where the inventory does not ask.

    Raises:
        Refused: no set is named, the distribution is missing, the set is for other versions, or
            the inventory names allowed signers and none of them vouches for it as it is.
        UsageError: there is no such set, or the allowed signers cannot be read.
    """
    wanted = name or session.service.patch_set
    if wanted is None:
        raise Refused(
            f"no patch set is named for {session.service.name}",
            remedy="give --patch-set NAME, or set services.*.patch_set in the inventory; "
            "opsctl patches list has them",
            code="no_patch_set",
        )
    install = require_install(facts)
    found = ps.find(root, wanted, session.service.distribution, install["version"])
    signers = session.service.allowed_signers
    return found, None if signers is None else ps.verify(found, signers)


def require_state(facts: Mapping[str, Any]) -> None:
    """What the host records must be readable."""
    fault = facts.get("state_fault")
    if fault:
        raise Refused(fault["message"], remedy=fault["remedy"], code=fault["code"])


def require_install(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The install's facts, or the host's own reason why there are none."""
    install: Mapping[str, Any] = facts["install"]
    if "fault" in install:
        fault = install["fault"]
        raise Refused(fault["message"], remedy=fault["remedy"], code=fault["code"])
    return install


def make_plan(
    session: Session,
    patchset: ps.PatchSet,
    facts: Mapping[str, Any],
    *,
    signer: ps.Signer | None = None,
    adopt: bool = False,
    templates: Path | None = None,
    with_unit: bool = False,
) -> Plan:
    """Read the files of a host with these `facts`, rebuild the pristine ones, apply the set in
    memory.

    `adopt` takes files that were changed by hand as what is to be returned to. With `templates`
    the unit's files are compared as well, and are part of the deploy if `with_unit` or the
    inventory says so.

    Raises:
        Refused: the version is another, a file was changed by hand, or a needed content is lost.
        PatchError: the set does not apply or does not compile.
    """
    require_state(facts)
    install = require_install(facts)
    _require_version(patchset, install)
    if install.get("editable"):
        raise Refused(
            f"{patchset.target.distribution} is an editable install at {install['package_dir']}: "
            "its RECORD does not say what the release's files are",
            remedy="install the release's wheel in that environment",
            code="editable_install",
        )
    generation = facts["generation"]
    paths = sorted({*patchset.paths, *install["files"]})
    read = session.call("read", install=install, paths=paths, objects=[])
    current = {path: _decode(text) for path, text in read["paths"].items()}
    pristine = _pristine(session, patchset, install, read["record"], current, adopt=adopt)
    known = _recognise(patchset, current, pristine)
    drifted = drift.unexplained(generation, current, pristine, patchset.paths if known else ())
    if drifted and not adopt:
        raise _drift(session, facts, drifted, current, pristine)
    installed = _installed(facts, drifted, known)
    bundle = ps.bundle(patchset, {path: pristine[path] for path in patchset.paths})
    after = {file.path: file.content for file in bundle.files}
    # Whole sets replace whole sets: a file of the old set that the new one leaves alone goes
    # back to the wheel's.
    wanted = {path: after.get(path, pristine[path]) for path in current}
    changes = tuple(
        ps.FileChange(path, current[path], wanted[path])
        for path in sorted(current)
        if current[path] != wanted[path]
    )
    with_unit = with_unit or session.service.launch.managed
    unit: tuple[UnitChange, ...] = ()
    if templates:
        unit = unitplan.compare(session.service, facts, templates, needed=with_unit)
    with_unit = bool(unit) and with_unit
    unit_files = {c.path: _hash(c.after) for c in unit} if with_unit else {}
    contents = {
        ps.sha256(data): base64.b64encode(data).decode("ascii")
        for data in [
            *wanted.values(),
            *pristine.values(),
            *(change.after for change in unit if with_unit),
        ]
        if data is not None
    }
    return Plan(
        patchset=patchset,
        facts=facts,
        installed=installed,
        changes=changes,
        new_patches=_new_patches(patchset, installed),
        seen={
            path: {"sha256": _hash(data), "pristine_sha256": _hash(pristine[path])}
            for path, data in current.items()
        },
        target={
            "set": {**describe(patchset), "patches": [p.name for p in patchset.patches]},
            "signed": asdict(signer) if signer is not None else None,
            "unit": unit_files,
            "files": {
                path: {"sha256": _hash(after[path]), "pristine_sha256": _hash(pristine[path])}
                for path in patchset.paths
            },
        },
        contents={str(digest): text for digest, text in contents.items()},
        adopted=tuple(drifted),
        unit=unit,
        with_unit=with_unit,
        signer=signer,
    )


def _installed(
    facts: Mapping[str, Any], drifted: Collection[str], known: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """The set on disk: the recorded one while its files are there, but for what a hand did."""
    generation = facts["generation"]
    if generation is None or generation["version"] != facts["install"]["version"]:
        return known
    if set(changed_files(facts)) <= set(drifted):
        recorded: Mapping[str, Any] | None = generation["set"]
        return recorded
    return known


def _require_version(patchset: ps.PatchSet, install: Mapping[str, Any]) -> None:
    if install["version"] != patchset.target.version:
        raise Refused(
            f"{patchset.label} is for {patchset.target.distribution} {patchset.target.version}, "
            f"but the host has {install['version']}",
            remedy=f"install {patchset.target.version} there, or write the set for the other",
            code="wrong_version",
        )


def _pristine(
    session: Session,
    patchset: ps.PatchSet,
    install: Mapping[str, Any],
    record: Mapping[str, str | None],
    current: Mapping[str, bytes | None],
    *,
    adopt: bool,
) -> dict[str, bytes | None]:
    """The wheel's content of each path: as it is on disk, from the host's store by its RECORD
    hash, by un-applying the set, or from the wheel itself where a change by hand is to be
    adopted. Only what has the RECORD hash counts."""
    pristine: dict[str, bytes | None] = {}
    missing: dict[str, str] = {}
    for path, digest in record.items():
        if digest is None or _hash(current[path]) == digest:
            pristine[path] = None if digest is None else current[path]
        else:
            missing[path] = digest
    sources: list[Callable[[], Mapping[str, bytes | None]]] = [
        partial(_stored, session, install, missing),
        partial(_unapplied, patchset, current),
    ]
    if adopt:
        sources.append(partial(_of_the_wheel, session, patchset, missing))
    for source in sources:
        found = source() if missing else {}
        for path in [p for p, digest in missing.items() if _hash(found.get(p)) == digest]:
            pristine[path] = found[path]
            del missing[path]
    if missing:
        whose = "its" if len(missing) == 1 else "their"
        why = f"{whose} content is neither the wheel's nor of a known set"
        raise drift.refusal(list(missing), why, session.host.name)
    return pristine


def _stored(
    session: Session, install: Mapping[str, Any], wanted: Mapping[str, str]
) -> dict[str, bytes | None]:
    """From what earlier deploys keep on the host, by hash."""
    read = session.call("read", install=install, paths=[], objects=list(wanted.values()))
    return {path: _decode(read["objects"].get(digest)) for path, digest in wanted.items()}


def _of_the_wheel(
    session: Session, patchset: ps.PatchSet, paths: Collection[str]
) -> dict[str, bytes | None]:
    wheel = ps.fetch(patchset, emit=session.emit)
    return ps.read_sources(wheel, patchset.target.package, list(paths))[0]


def _drift(
    session: Session,
    facts: Mapping[str, Any],
    paths: Sequence[str],
    current: Mapping[str, bytes | None],
    pristine: Mapping[str, bytes | None],
) -> Refused:
    """That a hand changed `paths`, with its own lines only: what the generation put there, or
    else the wheel, is what they are compared with."""
    generation = facts["generation"]
    if generation is None or generation["version"] != facts["install"]["version"]:
        generation = {"number": None, "files": {}}
    digests = {p: generation["files"][p]["sha256"] for p in paths if p in generation["files"]}
    wanted = {path: digest for path, digest in digests.items() if digest is not None}
    stored = _stored(session, facts["install"], wanted) if wanted else {}
    ours: dict[str, bytes | None] = {
        path: stored.get(path)
        for path, digest in digests.items()
        if _hash(stored.get(path)) == digest  # what is lost from the store cannot be shown
    }
    recorded = (generation["number"], ours)
    why = drift.by_hand(paths, pristine, recorded, current)
    return drift.refusal(paths, why, session.host.name, generation["number"] if ours else None)


def _unapplied(
    patchset: ps.PatchSet, current: Mapping[str, bytes | None]
) -> dict[str, bytes | None]:
    try:
        return dict(ps.unapply(patchset, {path: current[path] for path in patchset.paths}))
    except PatchError:
        return {}


def _recognise(
    patchset: ps.PatchSet,
    current: Mapping[str, bytes | None],
    pristine: Mapping[str, bytes | None],
) -> dict[str, Any] | None:
    """This very set, put there by other means than opsctl."""
    undone = _unapplied(patchset, current)
    touched = patchset.paths
    if undone and all(undone.get(p) == pristine[p] for p in touched):
        return {**describe(patchset), "patches": [p.name for p in patchset.patches]}
    return None


def _new_patches(patchset: ps.PatchSet, installed: Mapping[str, Any] | None) -> tuple[str, ...]:
    had = set(installed.get("patches", ())) if installed else set()
    return tuple(patch.name for patch in patchset.patches if patch.name not in had)


def _decode(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _hash(data: bytes | None) -> str | None:
    return None if data is None else ps.sha256(data)
