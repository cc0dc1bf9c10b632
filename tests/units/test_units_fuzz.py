"""No value of the inventory can add, end or change a setting of a unit.

The parser here is written from systemd.syntax(7), systemd.service(5) "Command lines", and
conf-parser.c for what these leave open: comment lines are skipped within a continuation too.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from opsctl import resources
from opsctl.errors import UsageError
from opsctl.inventory.models import Service
from opsctl.units.template import render_unit

TEMPLATES = resources.bundled("unit-templates")
EXTRA = "$OPSCTL_EXTRA_ARGS"
PRESTART = "/etc/systemd/system/serve.service.d/opsctl-prestart.py"
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "'": "'",
    "s": " ",
}

# What has a meaning to a shell, to systemd or to a line reader, and pieces of all of them.
PIECES = [
    *(" ", "  ", "\t", "\n", "\r", "\x00", "\x1b", "\x7f", "\x85", "\u2028", "\u00a0", "ä", "模型"),
    *("'", '"', "`", "\\", "\\\\", "\\n", "\\x41", "$", "$$", "${HOME}", "$HOME", "$(id)", "`id`"),
    *(";", "&&", "|", ">", "#", "%", "%%", "%h", "-", "--", "--x=y", "@", "+", "!", "*", "~", "="),
    *("a", "B", "/", "..", "{{ 1 }}", "{% x %}", "\nExecStart=/bin/false\n", "[Service]", " \\\n"),
]
texts = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
)


def parse(unit: str) -> list[tuple[str, str]]:
    """The settings in order; sections as settings of an empty name."""
    found, joined = [], ""
    for raw in re.split(r"[\n\r\0]", unit):
        line = raw.lstrip(" \t")
        if line[:1] in {"#", ";"}:
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1] + " "
            continue
        text, joined = (joined + line).strip(" \t"), ""
        if text.startswith("["):
            found.append(("", text))
        elif text:
            key, separator, value = text.partition("=")
            assert separator, text
            found.append((key.strip(" \t"), value.strip(" \t")))
    assert not joined
    return found


def words(value: str) -> list[str]:
    """As extract_first_word with quotes and C escapes, then specifiers."""
    found, at = [], 0
    while at < len(value):
        if value[at] in " \t\n\r":
            at += 1
            continue
        word, quote = "", ""
        while at < len(value) and (quote or value[at] not in " \t\n\r"):
            character = value[at]
            at += 1
            if character == "\\":
                word += _ESCAPES[value[at]]
                at += 1
            elif quote and character == quote:
                quote = ""
            elif not quote and character in "'\"":
                quote = character
            else:
                word += character
        assert not quote, "an open quote"
        found.append(specifiers(word))
    return found


def specifiers(text: str) -> str:
    assert "%" not in text.replace("%%", ""), f"a specifier: {text!r}"
    return text.replace("%%", "%")


def arguments(value: str) -> list[str]:
    first, *rest = words(value)
    assert "$" not in first or first.startswith("/"), "the program's path is taken as it is"
    assert rest.pop() == EXTRA
    plain = []
    for word in rest:
        assert "$" not in word.replace("$$", ""), f"a variable: {word!r}"
        plain.append(word.replace("$$", "$"))
    return [first, *plain]


def service(**values: Any) -> Service:
    fields: dict[str, Any] = {
        "unit": "serve.service",
        "python": values["python"],
        "port": 30001,
        "listen": values["listen"],
        "model": {"path": values["path"], "served_name": values["name"]},
        "launch": {
            "user": values["user"],
            "args": values["args"],
            "environment": {"ONE": values["env"], "TWO": "2"},
        },
    }
    found = Service.model_validate(fields)
    found._name = "serve"
    return found


PLAIN = {"python": "/p", "listen": "::", "path": "/m", "name": "n", "user": "u", "env": "e"}
KEYS = [key for key, _ in parse(render_unit(service(**PLAIN, args=["-a"]), TEMPLATES))]

values = st.fixed_dictionaries(
    {
        "python": texts.map("/{}".format),
        "path": texts.map("/{}".format),
        **dict.fromkeys(("listen", "name", "user", "env"), texts),
        "args": st.lists(texts, max_size=3),
    }
)


@settings(max_examples=300, deadline=None)
@given(values=values)
@example(values={**PLAIN, "args": [], "user": "root\\"})
@example(values={**PLAIN, "args": [";", "#x", "", "\\", "x\\"]})
@example(values={**PLAIN, "args": [], "name": "x\nExecStartPre=/bin/false"})
def test_a_unit_says_what_the_inventory_says_or_is_not_written(values: dict[str, Any]) -> None:
    try:
        made = service(**values)
        unit = render_unit(made, TEMPLATES)
    except (ValidationError, UsageError):
        return
    found = parse(unit)
    assert [key for key, _ in found] == KEYS, "no setting more or less"
    by_key: dict[str, list[str]] = {}
    for key, value in found:
        by_key.setdefault(key, []).append(value)
    given = [
        *("--model-path", values["path"], "--served-model-name", values["name"]),
        *("--host", values["listen"], "--port", "30001", *values["args"]),
    ]
    (command,) = by_key["ExecStart"]
    assert arguments(command) == [values["python"], "-m", "sglang.launch_server", *given]
    (check,) = by_key["ExecStartPre"]
    assert arguments(check) == [values["python"], "-I", "-S", PRESTART, *given]
    assert f"ONE={values['env']}" in [w for line in by_key["Environment"] for w in words(line)]
    assert [specifiers(user) for user in by_key["User"]] == [values["user"]]
    (description,) = by_key["Description"]
    assert specifiers(description) == f"SGLang server {values['name']} (port 30001)"


@pytest.mark.parametrize("user", ["root\\", "root ", " root", "ro\not", "root\t"])
def test_a_plain_setting_takes_no_line_with_it(user: str) -> None:
    with pytest.raises(UsageError, match="cannot be rendered"):
        render_unit(service(**{**PLAIN, "user": user}, args=[]), TEMPLATES)
