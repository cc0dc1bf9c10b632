"""Applying and un-applying: exact to the byte, or refused with the place and the reason."""

from __future__ import annotations

import json
from base64 import b64decode
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from patchset_tools import make_diff, make_set

from opsctl.errors import PatchError
from opsctl.patchset import (
    PatchSet,
    apply,
    bundle,
    compile_check,
    diff,
    load,
    require_compiles,
    sha256,
    unapply,
)

OLD = b"".join(b"line %d\n" % number for number in range(1, 31))
NEW = OLD.replace(b"line 10\n", b"ten\n").replace(b"line 25\n", b"line 25\nmore\n")
Contents = dict[str, bytes | None]


def patchset_of(folder: Path, *diffs: bytes, files: dict[str, bytes] | None = None) -> PatchSet:
    named = {f"{n:04}-step.patch": text for n, text in enumerate(diffs, 1)}
    return load(make_set(folder, named, files=files))


def after(patchset: PatchSet, sources: Contents) -> Contents:
    return {path: change.after for path, change in apply(patchset, sources).items()}


def round_trip(patchset: PatchSet, sources: Contents, expected: Contents) -> None:
    result = after(patchset, sources)
    assert result == expected
    assert unapply(patchset, result) == sources


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        (OLD, NEW),
        (OLD, OLD + b"no newline"),
        (OLD + b"no newline", OLD),
        (b"a\nb", b"a\nb\n"),
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
        (b"\xff\xfe\n\x0c\x1c\x85\n", b"\xff\xfe\n\x0c\x1c\x86\n"),
        (b"", b"a\n"),
        (b"a\n", b""),
        (None, b"new\n"),
        (b"gone\n", None),
    ],
)
@pytest.mark.parametrize("context", [0, 3])
def test_round_trip(
    tmp_path: Path, before: bytes | None, wanted: bytes | None, context: int
) -> None:
    patchset = patchset_of(tmp_path, make_diff("a.txt", before, wanted, context))
    round_trip(patchset, {"a.txt": before}, {"a.txt": wanted})


def test_several_patches_to_one_file_in_series_order(tmp_path: Path) -> None:
    last = NEW.replace(b"ten\n", b"TEN\n")
    patchset = patchset_of(tmp_path, make_diff("a", OLD, NEW), make_diff("a", NEW, last))
    round_trip(patchset, {"a": OLD}, {"a": last})
    change = apply(patchset, {"a": OLD})["a"]
    assert change.patches == ("0001-step.patch", "0002-step.patch")
    assert (change.added, change.removed, change.stat) == (2, 1, "+2 -1")
    assert (change.before_sha256, change.after_sha256) == (sha256(OLD), sha256(last))


def test_an_empty_new_file(tmp_path: Path) -> None:
    text = b"diff --git a/e b/e\nnew file mode 100644\nindex 0000000..e69de29\n"
    round_trip(patchset_of(tmp_path, text), {"e": None}, {"e": b""})


def test_new_files(tmp_path: Path) -> None:
    patchset = patchset_of(tmp_path, make_diff("a", OLD, NEW), files={"sub/n.py": b"x = 1\n"})
    round_trip(patchset, {"a": OLD, "sub/n.py": None}, {"a": NEW, "sub/n.py": b"x = 1\n"})
    assert apply(patchset, {"a": OLD})["sub/n.py"].patches == ("files/sub/n.py",)
    with pytest.raises(PatchError, match="already there"):
        apply(patchset, {"a": OLD, "sub/n.py": b""})
    with pytest.raises(PatchError, match="not the module that the set brings"):
        unapply(patchset, {"a": NEW, "sub/n.py": b"x = 2\n"})


def test_a_mismatch_names_everything(tmp_path: Path) -> None:
    patchset = patchset_of(tmp_path, make_diff("a.txt", OLD, NEW))
    with pytest.raises(PatchError) as caught:
        apply(patchset, {"a.txt": OLD.replace(b"line 24", b"LINE 24")})
    assert caught.value.message == (
        "0001-step.patch: a.txt:24: hunk 2 does not apply\n"
        "  expected 'line 24\\n'\n"
        "  found    'LINE 24\\n'"
    )
    assert "refresh the patch" in caught.value.remedy


def test_no_offset_but_a_hint(tmp_path: Path) -> None:
    patchset = patchset_of(tmp_path, make_diff("a.txt", OLD, NEW))
    with pytest.raises(PatchError, match=r"a\.txt:7: hunk 1[^$]*would apply at line 9: refresh"):
        apply(patchset, {"a.txt": b"x\ny\n" + OLD})


def test_twice_is_once_too_often(tmp_path: Path) -> None:
    patchset = patchset_of(tmp_path, make_diff("a.txt", OLD, NEW))
    with pytest.raises(PatchError, match="already there: is the patch applied twice"):
        apply(patchset, {"a.txt": NEW})


@pytest.mark.parametrize(
    ("old", "new", "found", "words"),
    [
        (OLD, NEW, b"line 7\n", "the end of the file"),
        (OLD, NEW, None, "does not exist"),
        (None, NEW, b"", "is to be created, but is already there"),
        (b"a\n", None, b"a\nb\n", "1 of its lines are not in the patch"),
        (b"a\n", b"a\nb", b"a\nc\n", "a line without a newline"),
    ],
)
def test_other_contents(
    tmp_path: Path, old: bytes | None, new: bytes | None, found: bytes | None, words: str
) -> None:
    patchset = patchset_of(tmp_path, make_diff("a.txt", old, new))
    with pytest.raises(PatchError, match=words):
        apply(patchset, {"a.txt": found})


def test_an_insertion_beyond_the_end(tmp_path: Path) -> None:
    patchset = patchset_of(tmp_path, b"--- a/a\n+++ b/a\n@@ -9,0 +10 @@\n+x\n")
    with pytest.raises(PatchError, match="the end of the file"):
        apply(patchset, {"a": b"one\n"})


def test_unapply_refuses_foreign_content(tmp_path: Path) -> None:
    patchset = patchset_of(tmp_path, make_diff("a.txt", OLD, NEW))
    with pytest.raises(PatchError, match=r"fix 1\.0\.0, un-applying 0001-step\.patch: a\.txt:10"):
        unapply(patchset, {"a.txt": OLD})


def test_compiling(tmp_path: Path) -> None:
    good, bad = b"x = 1\n", b"x = 1\ny = (\n"
    patchset = patchset_of(
        tmp_path,
        make_diff("a.py", good, bad),
        make_diff("b.txt", good, bad),
        files={"n.py": b"s = '\\d'\nz = 0\0\n"},
    )
    changes = apply(patchset, {"a.py": good, "b.txt": good})
    problems = {problem.path: problem for problem in compile_check(changes)}
    assert set(problems) == {"a.py", "n.py"}
    assert (problems["a.py"].line, problems["a.py"].patch) == (2, "0001-step.patch")
    assert problems["n.py"].patch == "files/n.py"
    with pytest.raises(PatchError, match=r"a\.py:2: '\(' was never closed \(last touched by 0001"):
        require_compiles(changes)
    with pytest.raises(PatchError, match="does not compile"):
        bundle(patchset, {"a.py": good, "b.txt": good})


def test_diff_shows_what_changes(tmp_path: Path) -> None:
    patchset = patchset_of(tmp_path, make_diff("a", b"x\ny", b"x\n\xff\n"), files={"n.py": b"1\n"})
    assert diff(apply(patchset, {"a": b"x\ny"})) == (
        "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n x\n-y\n\\ No newline at end of file\n+\\xff\n"
        "--- /dev/null\n+++ b/n.py\n@@ -0,0 +1 @@\n+1\n"
    )


def test_a_bundle_is_complete_json(tmp_path: Path) -> None:
    patchset = patchset_of(
        tmp_path, make_diff("a", OLD, NEW), make_diff("d", b"x\n", None), files={"n": b"\xff"}
    )
    sent = json.loads(json.dumps(bundle(patchset, {"a": OLD, "d": b"x\n"}).to_json()))
    files = {file["path"]: file for file in sent.pop("files")}
    assert sent == {
        "name": "fix",
        "version": "1.0.0",
        "digest": patchset.digest,
        "distribution": "demo",
        "distribution_version": "1.0",
        "package": "demo",
        "restart": True,
    }
    assert b64decode(files["a"]["content"]) == NEW
    assert (files["a"]["before_sha256"], files["a"]["after_sha256"]) == (sha256(OLD), sha256(NEW))
    assert (files["a"]["added"], files["a"]["removed"]) == (2, 1)
    assert (files["d"]["content"], files["d"]["after_sha256"]) == (None, None)
    assert (files["n"]["before_sha256"], b64decode(files["n"]["content"])) == (None, b"\xff")
    assert bundle(patchset, {"a": OLD, "d": b"x\n"}).files[0].stat == "+2 -1"


# Lines with every kind of end and odd byte; few distinct ones, so that contexts repeat.
_LINES = st.lists(
    st.sampled_from([b"a\n", b"b\n", b"\n", b"c\r\n", b"\xff\xc3\n", b"\x0c\x85\n", b"- a\n"]),
    max_size=25,
)
_TEXTS = st.builds(
    lambda lines, tail: b"".join(lines) + tail, _LINES, st.sampled_from([b"", b"end", b"\r"])
)


def _diff_by_newline(path: str, before: bytes, after_: bytes, context: int) -> bytes:
    # make_diff splits with splitlines(), which knows more line ends than diff(1) does.
    coded = [text.replace(b"\r", b"\x01").replace(b"\x0c", b"\x02") for text in (before, after_)]
    return (
        make_diff(path, coded[0], coded[1], context)
        .replace(b"\x01", b"\r")
        .replace(b"\x02", b"\x0c")
    )


@given(texts=st.lists(_TEXTS, min_size=2, max_size=4), context=st.integers(0, 4))
def test_unapply_inverts_apply(texts: list[bytes], context: int) -> None:
    steps = list(pairwise(texts))
    assume(all(one != two for one, two in steps))
    diffs = [_diff_by_newline("a", one, two, context) for one, two in steps]
    with TemporaryDirectory() as folder:
        round_trip(patchset_of(Path(folder), *diffs), {"a": texts[0]}, {"a": texts[-1]})


@given(data=st.data(), before=_TEXTS, wanted=_TEXTS)
def test_one_changed_byte_in_what_a_hunk_covers_is_refused(
    data: st.DataObject, before: bytes, wanted: bytes
) -> None:
    assume(before and before != wanted)
    # All lines as context: then every byte is covered by the one hunk.
    text = _diff_by_newline("a", before, wanted, 100)
    place = data.draw(st.integers(0, len(before) - 1))
    flip = data.draw(st.integers(1, 255))
    damaged = bytearray(before)
    damaged[place] ^= flip
    with TemporaryDirectory() as folder:
        patchset = patchset_of(Path(folder), text)
        assert after(patchset, {"a": before}) == {"a": wanted}
        with pytest.raises(PatchError):
            apply(patchset, {"a": bytes(damaged)})
