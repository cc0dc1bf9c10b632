"""`check` on small wheels with one thing wrong each, and on the real set and wheel."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from patchset_tools import WHEEL_NAME, ddtree, make_diff, make_set, make_wheel, real_wheel

from opsctl.errors import PatchError
from opsctl.patchset import CheckReport, check, load

OLD, NEW = b"x = 1\n", b"x = 2\n"


def report(
    folder: Path,
    *diffs: bytes,
    wheel: dict[str, bytes] | None = None,
    record: dict[str, bytes] | None = None,
    files: dict[str, bytes] | None = None,
) -> CheckReport:
    folder.mkdir(exist_ok=True)
    path = folder / WHEEL_NAME
    sha256 = make_wheel(path, wheel or {"a.py": OLD}, record or {})
    named = {f"{n:04}-step.patch": text for n, text in enumerate(diffs, 1)}
    return check(load(make_set(folder / "fix", named, files=files, sha256=sha256)), path)


def verdicts(found: CheckReport) -> dict[str, str]:
    return {item.name: item.verdict for item in found.items}


def test_all_is_well(tmp_path: Path) -> None:
    found = report(tmp_path, make_diff("a.py", OLD, NEW), files={"n.py": b"y = 1\n"})
    assert found.ok
    assert verdicts(found) == dict.fromkeys(
        ["headers", "series", "wheel", "preimages", "apply", "compile", "unapply"], "ok"
    )
    assert (found.name, found.version, found.wheel) == ("fix", "1.0.0", WHEEL_NAME)
    assert found.changes["a.py"].after == NEW
    assert found.changes["n.py"].before is None
    found.raise_for_failures()


def test_a_patch_that_does_not_apply(tmp_path: Path) -> None:
    found = report(tmp_path, make_diff("a.py", b"x = 0\n", NEW))
    assert verdicts(found)["apply"] == "fail"
    assert "compile" not in verdicts(found)
    assert found.changes == {}
    with pytest.raises(PatchError, match=r"fix 1\.0\.0 is not fit to deploy:\n0001-step\.patch: a"):
        found.raise_for_failures()


def test_a_syntax_error(tmp_path: Path) -> None:
    found = report(tmp_path, make_diff("a.py", OLD, b"x = (\n"))
    assert [item.name for item in found.failures] == ["compile"]
    assert "a.py:1" in found.failures[0].message


def test_a_state_between_patches_that_does_not_compile(tmp_path: Path) -> None:
    half = b"x = (\n"
    found = report(tmp_path, make_diff("a.py", OLD, half), make_diff("a.py", half, NEW))
    assert found.ok
    (warning,) = [item for item in found.items if item.verdict == "warn"]
    assert warning.message.startswith("after 0001-step.patch the tree does not compile: a.py:1")


def test_a_wheel_that_contradicts_its_record(tmp_path: Path) -> None:
    found = report(tmp_path, make_diff("a.py", OLD, NEW), record={"a.py": b"other"})
    assert [item.name for item in found.failures] == ["preimages"]


def test_another_wheel(tmp_path: Path) -> None:
    patchset = load(make_set(tmp_path / "fix", {"0001-a.patch": make_diff("a.py", OLD, NEW)}))
    wheel = tmp_path / WHEEL_NAME
    assert "cannot read" in check(patchset, wheel).failures[0].message
    make_wheel(wheel, {"a.py": OLD})
    assert "not the pinned" in check(patchset, wheel).failures[0].message
    other = wheel.rename(tmp_path / "demo-1.0-py2-none-any.whl")
    assert "none of the set's wheels" in check(patchset, other).failures[0].message


def test_a_file_that_is_no_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / WHEEL_NAME
    wheel.write_bytes(b"not a zip")
    sha256 = hashlib.sha256(b"not a zip").hexdigest()
    folder = make_set(
        tmp_path / "fix", {"0001-a.patch": make_diff("a.py", OLD, NEW)}, sha256=sha256
    )
    (failure,) = check(load(folder), wheel).failures
    assert failure.name == "preimages"
    assert "as a wheel" in failure.message


def test_a_stray_patch_and_thin_headers(tmp_path: Path) -> None:
    report(tmp_path, make_diff("a.py", OLD, NEW))
    folder = tmp_path / "fix"
    (folder / "0002-stray.patch").write_text("")
    (folder / "0003-stray.diff").write_text("")
    thin = b"Description: x\nAuthor: me\n" + make_diff("a.py", OLD, NEW)
    (folder / "0001-step.patch").write_bytes(thin)
    found = check(load(folder), tmp_path / WHEEL_NAME)
    assert verdicts(found)["series"] == "fail"
    assert "0002-stray.patch is not in series, nor 1 more" in found.failures[0].message
    assert [item.message for item in found.items if item.verdict == "warn"] == [
        "0001-step.patch: no Forwarded header",
        "0001-step.patch: no Last-Update header",
    ]


@pytest.mark.wheel
def test_the_repositorys_set_on_the_real_wheel() -> None:
    found = check(ddtree(), real_wheel())
    assert found.ok, found.failures
    assert {item.verdict for item in found.items} == {"ok"}
    assert "srt/models/dflash.py" in found.changes
