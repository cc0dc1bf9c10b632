"""A unit's start without speculative decoding: a drop-in that no reboot outlives.

Its text is the unit's own, read from `systemctl cat`, without the words that turn speculation
on. The file is below /run, and the next start by opsctl takes it away, unless that is to be such
a one again; systemd's own, after a crash or by hand, does not.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import List, Match, NamedTuple

from .errors import HostFault
from .tools import reload_units, run

# The last of the drop-ins by name, so that it counts.
NAME = "zz-opsctl-plain.conf"
FOLDER = "/run/systemd/system"
_HEAD = (
    "# Written by opsctl: without speculative decoding until opsctl starts it again,\n"
    "# as by `opsctl restart`."
)
_PREFIX = "--speculative-"
# Those that are store_true, in SGLang 0.5.12.post1 (srt/server_args.py) and in the DDTree set's
# patch of that file; all others take a value.
_FLAGS = frozenset(
    {
        "--speculative-adaptive",
        "--speculative-skip-dp-mlp-sync",
        "--speculative-ddtree-chain-seed",
    }
)
# What begins with a dash and is a value all the same, as argparse has it.
_NEGATIVE = re.compile(r"-\d+\Z|-\d*\.\d+\Z")

# systemd's quoting (systemd.syntax(7), and extract_first_word in its sources): quotes may be
# anywhere in a word, and a backslash escapes within both kinds of them.
_DOUBLE, _SINGLE = r'"(?:[^"\\]|\\.)*"', r"'(?:[^'\\]|\\.)*'"
_WORD = re.compile(r"(?:[^\s\"'\\]|\\.|%s|%s)+" % (_DOUBLE, _SINGLE), re.DOTALL)
_QUOTED = re.compile(r"\\.|%s|%s" % (_DOUBLE, _SINGLE), re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|([0-3][0-7]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_LETTERS.update((each, each) for each in "\\\"'")
_ASSIGNED = re.compile(r"((?:[A-Za-z_]\w*=)?)(.*)\Z", re.DOTALL)


class _Word(NamedTuple):
    start: int
    end: int
    value: str  # without its quotes


def path(unit: str) -> str:
    return os.path.join(FOLDER, unit + ".d", NAME)


def dropin(unit: str) -> str:
    """What `apply` would write. Raises HostFault: see `without_speculation`."""
    done = run(["systemctl", "cat", "--no-pager", "--", unit])
    if done.returncode != 0:
        raise HostFault("no_such_unit", done.stderr.strip())
    return without_speculation(done.stdout)


def apply(unit: str) -> None:
    """Raises HostFault: see `without_speculation`."""
    text = dropin(unit)
    os.makedirs(os.path.dirname(path(unit)), mode=0o755, exist_ok=True)
    with open(path(unit), "w", encoding="utf-8") as f:
        f.write(text)
    reload_units()


def clear(unit: str) -> None:
    if not os.path.exists(path(unit)):
        return
    os.unlink(path(unit))
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path(unit)))
    reload_units()


def without_speculation(text: str) -> str:
    """The drop-in, of what `systemctl cat` prints of a unit.

    Raises:
        HostFault: there is no ExecStart, nothing to leave out, or no way to tell the words apart.
    """
    commands: List[str] = []
    checks: List[str] = []  # before the start, which may be given the same arguments
    settings: List[str] = []
    for line in assignments(_without_own(text)):
        key, _, value = (part.strip() for part in line.partition("="))
        if key == "ExecStart":
            commands = [*commands, value] if value else []  # an empty one resets
        elif key == "ExecStartPre":
            checks = [*checks, value] if value else []
        elif key == "Environment":
            settings.append(value)  # all: a later one may take back what an earlier one sets
    if not commands:
        raise HostFault("no_exec_start", "the unit has no ExecStart")
    kept_settings, kept_commands = list(map(_stripped, settings)), list(map(_stripped, commands))
    kept_checks = list(map(_stripped, checks))
    if (kept_settings, kept_commands) == (settings, commands):
        raise HostFault(
            "not_speculative",
            "the unit's arguments have no %s option to leave out" % _PREFIX,
            "look at what starts it: systemctl cat; a file that EnvironmentFile names is not read",
        )
    lines = ["Environment=" + value for value in kept_settings]
    if kept_checks != checks:  # a missing drafter is no reason not to start without one
        lines += ["ExecStartPre=", *("ExecStartPre=" + value for value in kept_checks)]
    lines += ["ExecStart=" + value for value in kept_commands]
    return "\n".join([_HEAD, "[Service]", "ExecStart=", *lines, ""])


def _without_own(text: str) -> str:
    """Without what this module wrote: `systemctl cat` prints `# PATH` before each file."""
    kept: List[str] = []
    own = False
    for line in text.split("\n"):
        if line.startswith("# /"):
            own = os.path.basename(line) == NAME
        if not own:
            kept.append(line)
    return "\n".join(kept)


def assignments(text: str) -> List[str]:
    """Each assignment, in one line as systemd joins it; comments and sections left out."""
    found: List[str] = []
    open_ended = False
    for line in map(str.lstrip, text.split("\n")):
        if line.startswith(("#", ";")) or (not open_ended and (not line or line[0] == "[")):
            continue
        if open_ended:
            found[-1] += line
        else:
            found.append(line)
        # A backslash before the last one makes that a character.
        open_ended = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if open_ended:
            found[-1] = found[-1][:-1] + " "
    return found


def _stripped(text: str) -> str:
    """Without the options and their values; a word that holds a command line by itself, for
    `sh -c` or in a variable, without those in it."""
    if _PREFIX not in _unquoted(text):
        return text
    words = split(text)
    kept: List[str] = []
    taken = 0  # of the text
    following = 0  # the next word, by its number
    for number, word in enumerate(words):
        if number < following:
            continue
        following = number + 1
        if word.value.startswith(_PREFIX):
            following += _takes_next(word.value, words[number + 1 :])
            kept.append(text[taken : word.start])
            taken = words[following].start if following < len(words) else len(text)
        elif _PREFIX in word.value:
            kept += [text[taken : word.start], _nested(text[word.start : word.end], word.value)]
            taken = word.end
    return "".join([*kept, text[taken:]])


def _takes_next(option: str, following: List[_Word]) -> bool:
    """Whether the word after it is its value, be that a variable's."""
    if "=" in option or option in _FLAGS or not following:
        return False
    value = following[0].value
    return not value.startswith("-") or value == "-" or bool(_NEGATIVE.match(value))


def _nested(raw: str, value: str) -> str:
    assigned = _ASSIGNED.match(value)
    assert assigned is not None  # it matches anything
    name, command = assigned.groups()
    if command == raw:  # one word, of which this is a part: a path, say
        return raw
    inner = _stripped(command)
    return raw if inner == command else _quote(name + inner)


def split(text: str) -> List[_Word]:
    """Raises HostFault: a quote or an escape that does not end."""
    found: List[_Word] = []
    at = 0
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        if at == len(text):
            return found
        match = _WORD.match(text, at)
        end = match.end() if match else at
        if end == at or not (end == len(text) or text[end].isspace()):
            raise HostFault(
                "unit_unsplittable",
                "the unit's arguments cannot be told apart at: %s" % text[at : at + 40],
                "correct the quotes there: systemctl cat",
            )
        found.append(_Word(at, end, _unquoted(text[at:end])))
        at = end


def _unquoted(text: str) -> str:
    return _QUOTED.sub(_part, text)


def _part(match: Match[str]) -> str:
    part = match.group()
    return _ESCAPE.sub(_character, part if part[0] == "\\" else part[1:-1])


def _character(match: Match[str]) -> str:
    byte, octal, short, long, letter = match.groups()
    if letter is not None:
        return _LETTERS.get(letter, match.group())  # an unknown one stays as it is
    if byte is None and octal is None:
        return chr(int(short or long, 16))
    number = int(byte, 16) if byte is not None else int(octal, 8)
    return chr(number if number < 0x80 else 0xDC00 + number)  # a byte, not a code point


def _quote(value: str) -> str:
    def escaped(match: Match[str]) -> str:
        character = match.group()
        if character in '\\"':
            return "\\" + character
        return "\\x%02x" % (ord(character) & 0xFF)

    return '"%s"' % re.sub('[\\\\"\\x00-\\x1f\\udc80-\\udcff]', escaped, value)
