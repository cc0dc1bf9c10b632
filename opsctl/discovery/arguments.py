"""SGLang's arguments as words: what decides an inventory's keys, and the rest for `launch.args`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# As argparse tells a value from an option.
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
# SGLang's other names for the same (srt/server_args.py of 0.5.12.post1).
_ALIASES = {
    "--model": "--model-path",
    "--speculative-draft-model": "--speculative-draft-model-path",
}
# What the unit template gives from keys of its own.
_OF_KEYS = frozenset({"--model-path", "--served-model-name", "--host", "--port"})

Group = tuple[str, ...]  # an option and its values; values alone where no option came before


def groups(words: Iterable[str]) -> list[Group]:
    """The options, each with its values; `--name=value` as two words, aliases by their name."""
    found: list[list[str]] = []
    for word in words:
        if word.startswith("-") and not _NEGATIVE.fullmatch(word):
            name, separator, value = word.partition("=")
            found.append([_ALIASES.get(name, name), *([value] if separator else [])])
        elif found:
            found[-1].append(word)
        else:
            found.append([word])
    return [tuple(group) for group in found]


def value(words: Sequence[str], name: str) -> str | None:
    """Of the option `name`; the last one counts."""
    values = [group[1] for group in groups(words) if group[0] == name and len(group) > 1]
    return values[-1] if values else None


def rest(words: Sequence[str], secrets: Iterable[str]) -> list[str]:
    """What `launch.args` has to say: all but the options with a key of their own and secrets.

    An option with one value is one word, `--tp-size=8`; one with several is a word each.
    """
    left_out = _OF_KEYS | set(secrets)
    found: list[str] = []
    for name, *values in groups(words):
        if name in left_out:
            continue
        found += [f"{name}={values[0]}"] if len(values) == 1 else [name, *values]
    return found
