"""SGLang's arguments for an inventory: what `launch.args` has to say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opsctl.sglang.arguments import groups

# What the unit template gives from keys of its own.
_OF_KEYS = frozenset({"--model-path", "--served-model-name", "--host", "--port"})


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
