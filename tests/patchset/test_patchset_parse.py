"""Diffs of every shape: those that opsctl applies, and those that it refuses."""

from __future__ import annotations

import pytest
from patchset_tools import HEADERS

from opsctl.errors import PatchError
from opsctl.patchset._parse import FileDiff, parse_patch


def diffs(text: str) -> tuple[FileDiff, ...]:
    return parse_patch("0001-a.patch", (HEADERS + text).encode(), "0001-a.patch").diffs


GIT = """\
diff --git a/x/a.py b/x/a.py
index 1234567..89abcde 100644
--- a/x/a.py
+++ b/x/a.py
@@ -1,2 +1,2 @@ def f():
 one
-two
+2
"""


def test_a_git_diff_and_a_plain_one_are_the_same() -> None:
    plain = "".join(line + "\n" for line in GIT.splitlines()[2:])
    assert diffs(GIT) == diffs(plain)
    (diff,) = diffs(GIT)
    assert (diff.path, diff.kind) == ("x/a.py", "modify")
    assert diff.hunks[0].lines == ((" ", b"one\n"), ("-", b"two\n"), ("+", b"2\n"))


def test_timestamps_quilt_lines_and_a_signature_are_no_content() -> None:
    quilt = GIT.split("\n", 2)[2].replace("a/x/a.py", "a/x/a.py\t2026-11-29 14:31:16 +0000")
    index = "Index: b/x/a.py\n" + "=" * 67 + "\n"
    assert diffs(index + quilt + "-- \n2.39.5\n\n") == diffs(GIT)


def test_new_and_deleted_files() -> None:
    new = "diff --git a/n.py b/n.py\nnew file mode 100644\nindex 0000000..1234567\n"
    new += "--- /dev/null\n+++ b/n.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    gone = "--- a/g.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    empty = "diff --git a/e.py b/e.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    found = diffs(new + gone + empty)
    assert [(diff.path, diff.kind, len(diff.hunks)) for diff in found] == [
        ("n.py", "add", 1),
        ("g.py", "delete", 1),
        ("e.py", "add", 0),
    ]


def test_no_newline_at_the_end_is_kept_on_both_sides() -> None:
    mark = "\\ No newline at end of file\n"
    text = f"--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n x\n-y\n{mark}+z\n{mark}"
    assert diffs(text)[0].hunks[0].lines == ((" ", b"x\n"), ("-", b"y"), ("+", b"z"))


def test_crlf_and_odd_bytes_are_kept() -> None:
    text = b"--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n x\r\n-\xff\x0c\xe9\r\n+\xfe\xc2\x85 y\r z\r\n \r\n"
    patch = parse_patch("0001-a.patch", HEADERS.encode() + text, "p")
    assert patch.diffs[0].hunks[0].lines == (
        (" ", b"x\r\n"),
        ("-", b"\xff\x0c\xe9\r\n"),
        ("+", b"\xfe\xc2\x85 y\r z\r\n"),
        (" ", b"\r\n"),
    )


def test_lines_that_look_like_headers_within_a_hunk() -> None:
    text = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n--- a/b\n+++ b/b\n @@ -1 +1 @@\n"
    assert diffs(text)[0].hunks[0].lines == (
        ("-", b"-- a/b\n"),
        ("+", b"++ b/b\n"),
        (" ", b"@@ -1 +1 @@\n"),
    )


def test_an_empty_line_stands_for_empty_context() -> None:
    text = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n\n-b\n+c\n"
    assert diffs(text)[0].hunks[0].lines[0] == (" ", b"\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n", "rename"),
        ("diff --git a/a b/b\ncopy from a\ncopy to b\n", "copy"),
        ("diff --git a/a b/a\nold mode 100644\nnew mode 100755\n", "file mode"),
        ("diff --git a/a b/a\nnew file mode 100755\nindex 0..1\n", "file mode"),
        ("diff --git a/a b/a\nnew file mode 120000\nindex 0..1\n", "file mode"),
        (GIT.replace("100644", "100755"), "file mode"),
        ("Binary files a/a.bin and b/a.bin differ\n", "binary"),
        ("diff --git a/a b/a\nBinary files a/a and b/a differ\n", "binary"),
        ("diff --git a/a b/a\nindex 0..1\nGIT binary patch\nliteral 1\n", "binary"),
        ("--- a/a\n+++ b/b\n@@ -1 +1 @@\n-x\n+y\n", ":8: --- a/a and +++ b/b are two files"),
        (GIT.replace("--- a/x/a.py", "--- a/x/b.py"), "two files"),
        (GIT + "+3\n", ":15: this line belongs to no hunk"),
        (GIT + "-- \nnot a\nsignature\n", "belongs to no hunk"),
        (GIT.replace("-1,2 +1,2", "-1,3 +1,2"), "shorter"),
        (GIT.replace("-1,2 +1,2", "-1,1 +1,2"), "longer"),
        (GIT.replace(" one", "?one"), ":12: Hunk diff line expected"),
        (GIT + GIT, "two diffs in one patch"),
        ("@@ -1 +1 @@\n-x\n+y\n", ":7: this line belongs to no hunk"),
        ("--- a/a\n@@ -1 +1 @@\n-x\n+y\n", "Unexpected hunk"),
        ("+++ b/a\n@@ -1 +1 @@\n-x\n+y\n", ":8: this line belongs to no hunk"),
        ("diff --git a/a b/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n", ":8: +++ without ---"),
        ("--- a/a\n+++ b/a\n", "named but not changed"),
        ("--- a/../a\n+++ b/../a\n@@ -1 +1 @@\n-x\n+y\n", "not a path"),
        ("--- /etc/a\n+++ /etc/a\n@@ -1 +1 @@\n-x\n+y\n", "not a path"),
        ("--- a.py\n+++ a.py\n@@ -1 +1 @@\n-x\n+y\n", "not a path"),
        ("--- a//etc/a\n+++ b//etc/a\n@@ -1 +1 @@\n-x\n+y\n", "not a path"),
        ('--- "a/\\303\\251"\n+++ "b/\\303\\251"\n@@ -1 +1 @@\n-x\n+y\n', "not a path"),
        ("--- a/a\n+++ b/a\n@@ -5 +5 @@\n-x\n+y\n@@ -2 +2 @@\n-x\n+y\n", "hunk 2: its line"),
        ("--- a/a\n+++ b/a\n@@ -5 +6 @@\n-x\n+y\n", "hunk 1: its line"),
        ("--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y", "cut off"),
        ("", "no diff"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(PatchError) as caught:
        diffs(text)
    assert caught.value.message.startswith("0001-a.patch")
    assert words in caught.value.message
    assert caught.value.remedy


def test_an_empty_patch_file() -> None:
    with pytest.raises(PatchError, match="empty"):
        parse_patch("0001-a.patch", b"", "p")
