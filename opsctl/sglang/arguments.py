"""SGLang's command line as words: options, each with its values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# Names a folder of weights beside the model's.
DRAFT = "--speculative-draft-model-path"
# As argparse tells a value from an option.
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
# SGLang's other names for the same (srt/server_args.py of 0.5.12.post1).
_ALIASES = {
    "--model": "--model-path",
    "--speculative-draft-model": DRAFT,
}
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
