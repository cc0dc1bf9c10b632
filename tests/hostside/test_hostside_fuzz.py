"""Whatever text arrives on the host: one argument stays one, and no path leaves the package."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opsctl.errors import PatchError
from opsctl.hostside import install, journal, looks, packagefiles, unit
from opsctl.hostside.errors import HostFault
from opsctl.hostside.state import Lock, State, lock_holder
from opsctl.patchset._parse import is_inside, parse_patch

PIECES = [
    *(
        " ",
        "\t",
        "\n",
        "\r",
        "\x1b",
        "ä",
        "模",
        "'",
        '"',
        "`",
        "\\",
        "$",
        "$(id)",
        "`id`",
        "${HOME}",
    ),
    *(
        ";",
        "&&",
        "|",
        ">",
        "<",
        "#",
        "%",
        "-",
        "--",
        "!",
        "*",
        "~",
        "=",
        "a",
        "/",
        "..",
        "\x00",
        "@",
    ),
]
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)


JOURNAL_OPTIONS = {"--lines=10", "--lines=all", "--since=@1.000000", "--reverse", "--follow"}


class Runs:
    """Stands in for subprocess: what would have been executed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.argv: list[list[str]] = []
        patch.setattr(subprocess, "run", self.run)
        patch.setattr(subprocess, "Popen", self.popen)

    def run(self, argv: Any, **options: Any) -> Any:
        self._see(argv, options)
        text = options.get("encoding") is not None
        out = "systemd 252 (252)\nActiveState=inactive\n"
        return subprocess.CompletedProcess(argv, 0, out if text else b"\n{}\n", "" if text else b"")

    def popen(self, argv: Any, **options: Any) -> Any:
        self._see(argv, options)
        raise FileNotFoundError

    def _see(self, argv: Any, options: dict[str, Any]) -> None:
        assert isinstance(argv, list)
        assert all(isinstance(word, str) for word in argv)
        assert not options.get("shell")
        assert not options.get("executable")
        self.argv.append(argv)


def attempt(function: Any, *args: Any) -> None:
    with contextlib.suppress(HostFault, OSError, ValueError):
        function(*args)


@settings(max_examples=150, deadline=None)
@given(name=texts, python=texts, other=texts, invocation=texts)
def test_an_argument_stays_one_argument(
    name: str, python: str, other: str, invocation: str
) -> None:
    texts_of_site = {"unit": name, "python": python, "distribution": other, "package": invocation}
    fixed = {"service": "serve", "listen": "127.0.0.1", "port": 1, "state_dir": "/nonexistent"}
    site = {**texts_of_site, **fixed}
    with pytest.MonkeyPatch.context() as patch:
        runs = Runs(patch)
        patch.setattr(os, "access", lambda path, mode: True)
        attempt(looks.inspect, site, [])
        attempt(install.locate, python, other, invocation)
        attempt(install.compile_check, python, {other: b"x = 1\n"})
        for verb in sorted(unit.VERBS):
            attempt(unit.control, name, verb)
        attempt(unit.control, name, other)
        attempt(journal.query, name, invocation, 10, other, 1.0)
        attempt(journal.query, name, None, 10, None, None)
        attempt(journal.Follower, name, invocation)
    assert len(runs.argv) > 10
    for program, *words in runs.argv:
        assert program in {"systemctl", "journalctl", "nvidia-smi", python}
        if program == python and words[:2] == ["-I", "-c"]:
            assert words[2] in {install._PROBE, install._COMPILE}
            assert words[3:] in ([], [other, invocation])
        elif program == "systemctl":
            assert words in (["--version"], ["daemon-reload"]) or words[-2:] == ["--", name]
            constant = words[:-2] if words[-2:] == ["--", name] else []
            assert all(w.startswith("--") or w in unit.VERBS or w == "show" for w in constant)
        elif program == "journalctl":
            values = {f"--unit={name}", f"--grep={other}", "+"}
            values |= {f"_SYSTEMD_INVOCATION_ID={invocation}", f"INVOCATION_ID={invocation}"}
            assert set(words) <= {*values, *journal.BASE, *JOURNAL_OPTIONS}


# -- paths -----------------------------------------------------------------------------------

PARTS = [
    *("..", ".", "", "sub", "a.py", "out", "in", "up", "self", "abs", ".git", ".GIT", "git~1"),
    *("...", " ", "~", "-x", "\\", "..\\", "\0", "a\0b", "\n", "ä", "con", "$HOME", "*", "x" * 300),
]
paths = st.one_of(
    st.lists(st.sampled_from(PARTS), max_size=6).map("/".join),
    st.lists(st.sampled_from(PARTS), max_size=5).map(lambda p: "/" + "/".join(p)),
    st.text(max_size=12),
)


@settings(max_examples=400, deadline=None)
@given(path=paths)
@example(path="a\0/../../x")
@example(path="sub/../../x")
def test_a_path_of_a_set_is_inside_or_refused_on_load(path: str) -> None:
    text = f"Description: x\nAuthor: y\n---\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-x\n+y\n"
    try:
        patch = parse_patch("0001-x.patch", text.encode("utf-8", "surrogatepass"), "0001-x.patch")
    except PatchError:
        named: tuple[str, ...] = ()
    else:
        named = tuple(patch.paths)
    for each in (*named, *([path] if is_inside(path) else [])):
        assert not each.startswith("/")
        assert "\0" not in each
        assert "\n" not in each
        assert not {"", ".", ".."} & set(each.split("/"))
        assert os.path.normpath(f"/r/{each}") == f"/r/{each}"


@settings(max_examples=400, deadline=None)
@given(path=paths)
@example(path="out/x.py")
@example(path="abs/x.py")
@example(path="up/x.py")
@example(path="in/../../x.py")
@example(path="a\0.py")
@example(path=".git/config")
def test_a_path_is_inside_or_refused_again_on_the_host(path: str) -> None:
    root = _package()
    codes = []
    try:
        full = packagefiles.full_path(str(root), path)
    except HostFault as fault:
        codes.append(fault.code)
    except OSError:
        return  # a name that is too long, for one
    if codes:
        assert codes == ["path_outside"]
        return
    assert full.startswith(f"{root}/")
    real = os.path.realpath(Path(full).parent)
    assert f"{real}/".startswith(f"{os.path.realpath(root)}/")


_MADE: list[tempfile.TemporaryDirectory[str]] = []


def _package() -> Path:
    """With folders that lead out of it and back into it; made once."""
    if not _MADE:
        _MADE.append(tempfile.TemporaryDirectory())
        root = Path(_MADE[0].name) / "pkg"
        (root / "sub").mkdir(parents=True)
        (Path(_MADE[0].name) / "elsewhere").mkdir()
        (root / "out").symlink_to("../elsewhere")
        (root / "abs").symlink_to("/etc")
        (root / "up").symlink_to("..")
        (root / "in").symlink_to("sub")
        (root / "self").symlink_to("self")
    return Path(_MADE[0].name) / "pkg"


@settings(max_examples=60, deadline=None)
@given(who=texts, why=texts, folder=texts)
def test_who_and_why_are_data_to_the_last_sign(who: str, why: str, folder: str) -> None:
    with tempfile.TemporaryDirectory() as root:
        name = folder.replace("/", "").replace("\0", "")
        where = Path(root) / (name if name not in {".", ".."} else "x")
        state, lock = State(str(where), "serve"), Lock()
        lock.take(state, {"who": who, "why": why})
        holder = lock_holder(state)
        lock.release()
        assert holder is not None
        assert (holder["who"], holder["why"]) == (who, why)
        made = {str(path.relative_to(where)) for path in where.rglob("*")}
        assert made >= {"serve", "serve/lock"}
        assert set(Path(root).iterdir()) <= {where, where / "serve"}
