"""Reading a set's folder: what is accepted, and what each mistake is called."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from patchset_tools import HEADERS, MANIFEST, PATCHES, ddtree, make_diff, make_set

from opsctl.errors import PatchError, UsageError
from opsctl.patchset import Needs, discover, find, load

DIFF = make_diff("a.py", b"one\ntwo\n", b"one\n2\n")
GOOD = MANIFEST.format(
    name="fix", version="1.0.0", wheel="demo-1.0-py3-none-any.whl", sha256="ab" * 32
)


def refused(folder: Path) -> PatchError:
    with pytest.raises(PatchError) as caught:
        load(folder)
    assert caught.value.remedy
    assert caught.value.exit_code == 3
    return caught.value


def test_a_set_is_read_whole(tmp_path: Path) -> None:
    patchset = load(make_set(tmp_path, {"0001-two.patch": DIFF}, files={"sub/new.py": b"x = 1\n"}))
    assert (patchset.name, patchset.version, patchset.label) == ("fix", "1.0.0", "fix 1.0.0")
    assert patchset.paths == ("a.py", "sub/new.py")
    assert patchset.new_files == {"sub/new.py": b"x = 1\n"}
    assert patchset.target.wheels[0].filename == "demo-1.0-py3-none-any.whl"
    assert patchset.restart is True
    assert patchset.description == "A set for tests"
    assert patchset.patches[0].dep3.synopsis == "Change something"
    assert patchset.patches[0].dep3.description == "Change something\nFor a reason."
    assert patchset.patches[0].dep3.get("last-update") == "2026-11-29"


def test_only_byte_code_within_the_set_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "__pycache__" / "checkout" / "fix"
    files = {"new.py": b"x = 1\n", "__pycache__/new.cpython-311.pyc": b"\0"}
    folder.mkdir(parents=True)
    patchset = load(make_set(folder, {"0001-two.patch": DIFF}, files=files))
    assert patchset.new_files == {"new.py": b"x = 1\n"}


@pytest.mark.parametrize(
    ("change", "line", "key", "words"),
    [
        (("version: 1.0.0\n", "version: one\n"), 2, "version", "PEP 440"),
        (("version: 1.0.0\n", 'version: "1.0.0\\n"\n'), 2, "version", "PEP 440"),
        (("name: fix", "name: ../fix"), 1, "name", "pattern"),
        (("name: fix", 'name: "fix\\n"'), 1, "name", "pattern"),
        (("package: demo", 'package: "demo\\n"'), 7, "for.package", "pattern"),
        (("restart: true", "restart: maybe"), 14, "restart", "boolean"),
        (("restart: true", "restrat: true"), 14, "restrat", "Extra inputs"),
        (("description: A set for tests\n", ""), 1, "description", "required"),
        (("sha256: a", "sha256: Z"), 10, "for.wheels.0.sha256", "pattern"),
        (("demo-1.0-py3", "demo-2.0-py3"), 4, "for", "is not of demo 1.0"),
        (("demo-1.0-py3-none-any.whl", "demo.zip"), 9, "for.wheels.0.filename", "wheel"),
        (("A set for tests", '"two\\nlines"'), 3, "description", "one line"),
        (('version: "1.0"', "version: 1.0"), 6, "for.version", "in quotes"),
        (("--algorithm=FAST", "algorithm"), 13, "needs.arguments.0", "expected --option"),
    ],
)
def test_a_wrong_manifest_names_file_line_and_key(
    tmp_path: Path, change: tuple[str, str], line: int, key: str, words: str
) -> None:
    assert change[0] in GOOD
    error = refused(make_set(tmp_path, {"0001-a.patch": DIFF}, manifest=GOOD.replace(*change)))
    assert f"{tmp_path / 'patchset.yaml'}:{line}: {key}: " in error.message
    assert words in error.message


def test_a_manifest_without_wheels(tmp_path: Path) -> None:
    start, end = GOOD.index("\n    - filename"), GOOD.index("\nneeds")
    text = GOOD[:start] + " []" + GOOD[end:]
    error = refused(make_set(tmp_path, {"0001-a.patch": DIFF}, manifest=text))
    assert "patchset.yaml:4: for: wheels: pin at least one" in error.message


@pytest.mark.parametrize("text", ["name: [", "- a\n", "", "\ttab: x"])
def test_a_manifest_that_is_no_mapping(tmp_path: Path, text: str) -> None:
    error = refused(make_set(tmp_path, {"0001-a.patch": DIFF}, manifest=text))
    assert f"{tmp_path / 'patchset.yaml'}:1: " in error.message


def test_a_manifest_that_is_not_text(tmp_path: Path) -> None:
    make_set(tmp_path, {"0001-a.patch": DIFF})
    (tmp_path / "patchset.yaml").write_bytes(b"name: \xff\n")
    assert "not UTF-8" in refused(tmp_path).message


def test_a_folder_that_is_no_set(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path).message
    make_set(tmp_path)
    assert "no patches and no files" in refused(tmp_path).message
    (tmp_path / "series").unlink()
    assert "series" in refused(tmp_path).message


@pytest.mark.parametrize(
    ("series", "line", "words"),
    [
        ("0001-a.patch -R\n", 1, "option -R of 0001-a.patch"),
        ("# a comment\n\n0001-a.patch -p0\n", 3, "option -p0"),
        ("0001-a.patch\n0001-a.patch\n", 2, "listed twice"),
        ("../0001-a.patch\n", 1, "not a patch name"),
        ("fix.patch\n", 1, "not a patch name"),
    ],
)
def test_a_wrong_series(tmp_path: Path, series: str, line: int, words: str) -> None:
    error = refused(make_set(tmp_path, {"0001-a.patch": DIFF}, series=series))
    assert f"{tmp_path / 'series'}:{line}: " in error.message
    assert words in error.message


def test_a_series_with_comments_and_p1(tmp_path: Path) -> None:
    series = "# first\n\n0001-a.patch -p1  # why\n"
    assert len(load(make_set(tmp_path, {"0001-a.patch": DIFF}, series=series)).patches) == 1


def test_a_patch_that_series_names_and_the_folder_lacks(tmp_path: Path) -> None:
    error = refused(make_set(tmp_path, {"0001-a.patch": DIFF}, series="0002-b.patch\n"))
    assert "0002-b.patch" in error.message
    assert "series" in error.message


def test_a_new_file_that_a_patch_also_touches(tmp_path: Path) -> None:
    error = refused(make_set(tmp_path, {"0001-a.patch": DIFF}, files={"a.py": b""}))
    assert "0001-a.patch: a.py is one of this set's own new files" in error.message


def test_new_files_are_plain_files(tmp_path: Path) -> None:
    make_set(tmp_path, files={"a.py": b"", "__pycache__/a.cpython-311.pyc": b"x"})
    assert load(tmp_path).paths == ("a.py",)
    (tmp_path / "files" / "link.py").symlink_to("a.py")
    assert "not a plain file" in refused(tmp_path).message


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ("Author: me\n---\n", "no Description"),
        ("Description:\n Only a body\nAuthor: me\n---\n", "no Description"),
        ("Description: x\n---\n", "neither an Origin nor an Author"),
        ("Description: x\nAuthor: me\nLast-Update: yesterday\n---\n", "Last-Update"),
        ("Description: x\nDescription: y\nAuthor: me\n", ":2: the header Description is given"),
        ("Description: x\nAuthor: me\n\n stray\n", ":4: text that continues no header"),
        ("Description: x\nAuthor: me\nhello there\n", ":3: neither a DEP-3 header"),
        ("", "no Description"),
    ],
)
def test_wrong_headers(tmp_path: Path, headers: str, words: str) -> None:
    make_set(tmp_path, {"0001-a.patch": DIFF})
    (tmp_path / "0001-a.patch").write_bytes(headers.encode() + DIFF)
    error = refused(tmp_path)
    assert str(tmp_path / "0001-a.patch") in error.message
    assert words in error.message


def test_headers_that_a_careful_patch_would_have(tmp_path: Path) -> None:
    make_set(tmp_path, {"0001-a.patch": DIFF})
    headers = "Subject: x\nFrom: me\nColour: red\nBug-Debian: 1\nX-Note: a\n# a comment\n"
    (tmp_path / "0001-a.patch").write_bytes(headers.encode() + DIFF)
    assert load(tmp_path).patches[0].dep3.advice() == [
        "no Forwarded header",
        "no Last-Update header",
        "unknown header Colour",
    ]


def test_the_digest_follows_what_the_set_does(tmp_path: Path) -> None:
    def digest(folder: str, **changes: object) -> str:
        values: dict[str, object] = {"patches": {"0001-a.patch": DIFF}, "files": {"n.py": b"1"}}
        return load(make_set(tmp_path / folder, **(values | changes))).digest  # type: ignore[arg-type]

    first = digest("one")
    assert digest("two") == first
    other = make_diff("a.py", b"one\ntwo\n", b"one\n3\n")
    assert digest("three", patches={"0001-a.patch": other}) != first
    assert digest("four", files={"n.py": b"2"}) != first
    assert digest("five", version="1.0.1") != first
    assert digest("six", manifest=GOOD.replace("FAST", "SLOW")) != first
    headers = HEADERS.replace("For a reason", "For another reason").encode()
    (tmp_path / "one" / "0001-a.patch").write_bytes(headers + DIFF + b"\n")
    assert load(tmp_path / "one").digest == first


def test_find_and_discover(tmp_path: Path) -> None:
    make_set(tmp_path / "demo-1.0" / "fix", {"0001-a.patch": DIFF})
    make_set(tmp_path / "demo-next" / "fix", {"0001-a.patch": DIFF}, name="fix")
    with pytest.raises(PatchError, match="belongs in"):
        discover(tmp_path)
    shutil.rmtree(tmp_path / "demo-next" / "fix")
    make_set(tmp_path / "demo-1.0" / "other", {"0001-a.patch": DIFF}, name="other")
    assert [patchset.name for patchset in discover(tmp_path)] == ["fix", "other"]
    assert find(tmp_path, "fix", "Demo", "1.0.0").name == "fix"
    (tmp_path / "demo-next" / "fix").mkdir()
    (tmp_path / "demo-next" / "fix" / "patchset.yaml").write_text("")
    with pytest.raises(
        PatchError, match=r"not for demo 2\.0; it exists for demo-1\.0, demo-next"
    ) as caught:
        find(tmp_path, "fix", "demo", "2.0")
    assert caught.value.code == "patch_set_other_release"
    with pytest.raises(UsageError, match="known: fix, other"):
        find(tmp_path, "nothing", "demo", "1.0")
    with pytest.raises(UsageError, match="known: none"):
        find(tmp_path / "nowhere", "fix", "demo", "1.0")


def test_a_set_in_the_wrong_folder(tmp_path: Path) -> None:
    make_set(tmp_path / "demo-1.1" / "fix", {"0001-a.patch": DIFF})
    with pytest.raises(PatchError, match=r"belongs in demo-1\.0/fix"):
        discover(tmp_path)


def test_the_repositorys_own_set() -> None:
    patchset = ddtree()
    assert patchset.name in [found.name for found in discover(PATCHES)]
    assert "srt/models/dflash.py" in patchset.paths
    assert all(not patch.dep3.advice() for patch in patchset.patches)
    argv = ["python", "-m", "sglang.launch_server", "--speculative-algorithm", "DDTREE"]
    assert patchset.needs.unmet([*argv, "--speculative-draft-model-path=/m"]) == []
    assert patchset.needs.unmet(argv) == [
        "--speculative-draft-model-path or --speculative-draft-model"
    ]


@pytest.mark.parametrize(
    ("argv", "met"),
    [
        (["--mode=FAST", "--flag"], True),
        (["--mode", "FAST", "--flag", "--other"], True),
        (["--mode", "fast", "--flag=1"], True),
        (["--flag", "--mode"], False),
        (["--mode", "--flag"], False),
        (["--mode=FAST"], False),
        (["--mode=FAST", "--mode=SLOW", "--flag"], False),
        (["--mode=SLOW", "--mode", "FAST", "--flag"], True),
        (["--mode-x=FAST", "--flag"], False),
        (["--mode=FASTER", "--flag"], False),
        ([], False),
    ],
)
def test_needs(argv: list[str], met: bool) -> None:
    needs = Needs.model_validate({"arguments": ["--mode=FAST", ["--flag", "--flag-of-old"]]})
    assert (needs.unmet(argv) == []) is met


@pytest.mark.parametrize("path", [".opsctl-x.py", "sub/.opsctl-x.py", ".opsctl-y/x.py"])
def test_a_name_that_opsctl_keeps_for_itself_is_refused(tmp_path: Path, path: str) -> None:
    error = refused(make_set(tmp_path, {"0001-two.patch": DIFF}, files={path: b"x = 1\n"}))
    assert path in error.message
    (tmp_path / "files" / path).unlink()
    added = make_diff(path, None, b"x = 1\n")
    error = refused(make_set(tmp_path / "other", {"0001-two.patch": added}))
    assert path in error.message
