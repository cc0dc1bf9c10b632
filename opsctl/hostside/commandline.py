"""SGLang's command line as the files of a unit spell it: in ExecStart, or in a shell script.

Only what decides which words SGLang gets is understood: systemd's variables, a shell's
assignments, `export`, `exec`, `env`, `cd` and a virtual environment's `activate`. What is left with
a `$` in it is told as unresolved; the arguments of a process that runs need none of this.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from typing import Dict, List, Mapping, Match, NamedTuple, Optional, Sequence, Tuple

from . import plain
from .install import read_bytes

MODULE = "sglang.launch_server"
CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
# What systemd gives a service (systemd.exec(5), "$PATH").
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})
_LARGEST_SCRIPT = 256 << 10  # bytes
_DEEPEST = 4  # scripts that call scripts
# What packages of the distribution bring starts no SGLang, and would take seconds to read.
_PACKAGED = (
    "/usr/bin/",
    "/usr/sbin/",
    "/usr/lib/",
    "/usr/share/",
    "/lib/",
    "/bin/",
    "/sbin/",
    "/etc/init.d/",
)
_PREFIXES = "@-:+!|"  # of a command in ExecStart (systemd.service(5))
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)\Z", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_]\w*|[@*0-9])(?::?-([^}]*))?\}|([A-Za-z_]\w*|[@*0-9])|(\$))"
)
_COMMENT = re.compile(r"(?m)(^|\s)#.*$")
_SHEBANG = re.compile(rb"#!\s*(\S+)(?:[ \t]+(\S+))?")
# uv and pip write this where the path is too long for a shebang line.
_TRAMPOLINE = re.compile(r"""'''exec' ["']?([^"'\n]+?)["']? "\$0" """)
# Options that say nothing by themselves and leave the words after them to the shell.
_LEADING = frozenset({"exec", "env", "nohup", "time", "command", "sudo"})

Variables = Dict[str, str]


class Launch(NamedTuple):
    """A command that starts the server."""

    python: Optional[str]  # absolute; None where it cannot be told
    arguments: List[str]  # of the server
    via: str  # the script that holds it, "" for the unit itself
    folder: str  # that relative paths are from


class Place(NamedTuple):
    """Where words are read: variables, the working folder, and the script's own arguments."""

    variables: Variables
    folder: str = "/"
    given: Sequence[str] = ()
    via: str = ""
    depth: int = 0


def find(words: Sequence[str]) -> Optional[Tuple[Optional[str], List[str], bool]]:
    """(program, arguments of the server, whether the program is a script of Python's).

    None where the words start no server; the program is None where it stands before none.
    """
    for i, word in enumerate(words):
        after = words[i + 1] if i + 1 < len(words) else ""
        if word == "-m" and after == MODULE:
            return _python_before(words[:i]), list(words[i + 2 :]), False
        if word.endswith("/sglang/launch_server.py"):
            return _python_before(words[:i]), list(words[i + 1 :]), False
        if os.path.basename(word) == "sglang" and after == "serve":
            python = _python_before(words[:i])  # a script's own command line has it before
            return python or word, list(words[i + 2 :]), python is None
    return None


def _python_before(words: Sequence[str]) -> Optional[str]:
    named = [word for word in words if os.path.basename(word).startswith("python")]
    return named[-1] if named else None


def in_container(words: Sequence[str]) -> bool:
    return any(os.path.basename(word) in CONTAINERS for word in words[:3])


def of_unit(
    command: str, variables: Variables, folder: str, specifiers: Mapping[str, str]
) -> Tuple[Optional[Launch], List[str]]:
    """What an ExecStart line launches, and its words as they come to the program."""
    words: List[str] = []
    for word in plain.split(command.lstrip(_PREFIXES)):
        text = re.sub("%(.)", lambda m: specifiers.get(m.group(1), m.group()), word.value)
        words += _systemd(text, variables)
    return resolve(words, Place(variables, folder)), words


def _systemd(word: str, variables: Variables) -> List[str]:
    """`$NAME` by itself is as many words as it has, `${NAME}` a part of one."""
    alone = re.match(r"\$([A-Za-z_]\w*)\Z", word)
    if alone:
        return variables.get(alone.group(1), "").split()

    def value(match: Match[str]) -> str:
        if match.group(4):
            return "$"
        return variables.get(match.group(1) or match.group(3), "")

    return [_VARIABLE.sub(value, word)]


def resolve(words: Sequence[str], place: Place) -> Optional[Launch]:
    """The launch of a command, through the shells and scripts that it goes by."""
    if in_container(words):
        return None
    found = find(words)
    if found is not None:
        program, arguments, is_script = found
        python = _absolute(program, place)
        if is_script and python is not None:
            python = interpreter_of(python)
        return Launch(python, arguments, place.via, place.folder)
    words = _without_leading(words)
    if not words or place.depth >= _DEEPEST:
        return None
    if os.path.basename(words[0]) in _SHELLS:
        rest = list(words[1:])
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if option.endswith("c") and not option.startswith("--") and rest:
                return _of_script(rest[0], place._replace(given=rest[2:]))
        return _of_file(rest, place)
    return _of_file(words, place)


def _without_leading(words: Sequence[str]) -> List[str]:
    rest = list(words)
    while rest and (os.path.basename(rest[0]) in _LEADING or _ASSIGNED.match(rest[0])):
        rest.pop(0)
    return rest


def _of_file(words: Sequence[str], place: Place) -> Optional[Launch]:
    path = _absolute(words[0], place) if words else None
    text = script(path) if path and not path.startswith(_PACKAGED) else None
    if text is None:
        return None
    inner = place._replace(given=words[1:], via=str(path), depth=place.depth + 1)
    return _of_script(text, inner)


def script(path: str) -> Optional[str]:
    """The text of a shell script; None for anything else."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _LARGEST_SCRIPT:
            return None
        data = read_bytes(path) or b""
    except OSError:
        return None
    shebang = _SHEBANG.match(data)
    if shebang:
        names = [os.path.basename(word.decode()) for word in shebang.groups() if word]
        return data.decode("utf-8", "replace") if _SHELLS & set(names) else None
    return data.decode("utf-8", "replace") if path.endswith(".sh") else None


def interpreter_of(path: str) -> Optional[str]:
    """The Python of a console script, by its first line."""
    try:
        data = (read_bytes(path) or b"")[:4096]
    except OSError:
        return None
    shebang = _SHEBANG.match(data)
    if not shebang:
        return None
    name = shebang.group(1).decode("utf-8", "replace")
    if os.path.basename(name) in _SHELLS:
        trampoline = _TRAMPOLINE.search(data.decode("utf-8", "replace"))
        return trampoline.group(1) if trampoline else None
    if os.path.basename(name) == "env":
        return shutil.which((shebang.group(2) or b"").decode("utf-8", "replace"), path=PATH)
    return name


def _of_script(text: str, place: Place) -> Optional[Launch]:
    """The first launch in a script's text, with what it assigned before that."""
    variables = dict(place.variables)
    place = place._replace(variables=variables)
    for raw in _commands(text):
        words = list(raw)
        if words[0] in ("export", "declare", "local", "readonly", "set"):
            words = [word for word in words[1:] if not word.startswith("-")]
        while words and _ASSIGNED.match(words[0]):
            assigned = _ASSIGNED.match(words.pop(0))
            assert assigned is not None
            variables[assigned.group(1)] = "".join(_shell(assigned.group(2), place)[:1])
        expanded = [part for word in words for part in _shell(word, place)]
        if not expanded:
            continue
        if expanded[0] in ("source", ".") and len(expanded) > 1:
            _activate(expanded[1], place)
        elif expanded[0] == "cd" and len(expanded) > 1:
            place = place._replace(folder=os.path.join(place.folder, expanded[1]))
        else:
            found = resolve(expanded, place)
            if found is not None:
                return found
    return None


def _commands(text: str) -> List[List[str]]:
    """The simple commands of a script, as words without their quotes."""
    text = _COMMENT.sub(r"\1", text.replace("\\\n", " "))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    found: List[List[str]] = [[]]
    try:
        for token in lexer:
            if token and not token.strip(";&|\n"):
                found.append([])
            else:
                found[-1].append(token)
    except ValueError:  # a quote without its end: what came before it still counts
        pass
    return [words for words in found if words]


def _shell(word: str, place: Place) -> List[str]:
    """`word` with its variables; what is unknown stays as it is, `$` and all."""
    if word in ("$@", "$*", "${@}", "${*}"):
        return list(place.given)
    alone = _VARIABLE.match(word)
    known = alone and (alone.group(1) or alone.group(3)) in place.variables
    if alone and alone.end() == len(word) and known:
        return place.variables[alone.group(1) or alone.group(3)].split()

    def value(match: Match[str]) -> str:
        name = match.group(1) or match.group(3)
        if name is None:
            return match.group()
        if name.isdigit() and 0 < int(name) <= len(place.given):
            return place.given[int(name) - 1]
        return place.variables.get(name, match.group(2) or match.group())

    return [_VARIABLE.sub(value, word)]


def _activate(path: str, place: Place) -> None:
    """`source VENV/bin/activate` puts its folder before the others."""
    if os.path.basename(path) == "activate":
        folder = os.path.dirname(os.path.join(place.folder, path))
        place.variables["PATH"] = folder + os.pathsep + place.variables.get("PATH", PATH)


def _absolute(program: Optional[str], place: Place) -> Optional[str]:
    if not program or "$" in program:
        return None
    if "/" in program:
        return os.path.normpath(os.path.join(place.folder, program))
    return shutil.which(program, path=place.variables.get("PATH", PATH))
