"""YAML that somebody else may have written: the safe subset, bounded in what it grows to.

An alias costs a byte or two and stands for all of its anchor. Some lines of aliases of aliases
are billions of values, which no reader of the result ends with.
"""

from __future__ import annotations

from typing import Any

import yaml

# An inventory of a hundred hosts comes to some ten thousand; the deepest key lies ten deep.
_MOST_VALUES = 100_000
_DEEPEST = 50
# Bits of an integer; Python makes no decimal text of one of some fourteen thousand.
_WIDEST = 1024


class TooLarge(yaml.MarkedYAMLError):
    """With its aliases written out the text is too large, or it is nested too deeply."""


class Loader(yaml.SafeLoader):
    """PyYAML's SafeLoader, which refuses a text that is too large before it makes anything of it.

    Raises:
        TooLarge: see there; an alias that stands for itself counts as such.
    """

    def get_single_node(self) -> yaml.Node | None:
        try:
            node: yaml.Node | None = super().get_single_node()
        except RecursionError:
            raise _too_deep(self.get_mark()) from None
        if node is not None:
            _values(node, (), {})
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """PyYAML lets Python's own errors through for `2026-13-45`, `0b_` and `!!bool x`."""
        try:
            value = super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise _not_its_type(node) from None
        if isinstance(value, int) and value.bit_length() > _WIDEST:
            raise _not_its_type(node)
        return value


def compose(text: str) -> yaml.Node | None:
    """The nodes of the one document in `text`, None where it is empty.

    Raises:
        yaml.YAMLError: it is not YAML, or too large (`TooLarge`).
    """
    return Loader(text).get_single_node()


def load(text: str) -> Any:
    """The plain values of the one document in `text`.

    Raises:
        yaml.YAMLError: it is not YAML of the safe subset, or too large (`TooLarge`).
    """
    return Loader(text).get_single_data()


def _values(node: yaml.Node, within: tuple[int, ...], known: dict[int, int]) -> int:
    """How many values `node` stands for, each alias written out. `known` are those counted."""
    if id(node) in within:
        raise TooLarge(problem="an alias stands for itself", problem_mark=node.start_mark)
    if len(within) > _DEEPEST:
        raise _too_deep(node.start_mark)
    if id(node) not in known:
        within = (*within, id(node))
        children: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            children = node.value
        elif isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
        known[id(node)] = 1 + sum(_values(child, within, known) for child in children)
    if known[id(node)] > _MOST_VALUES:
        raise TooLarge(
            problem=f"with its aliases written out it holds more than {_MOST_VALUES} values",
            problem_mark=node.start_mark,
        )
    return known[id(node)]


def _not_its_type(node: yaml.Node) -> yaml.MarkedYAMLError:
    kind = node.tag.rpartition(":")[2]
    article = "an" if kind[:1] in "aeiou" else "a"
    return yaml.constructor.ConstructorError(
        problem=f"this cannot be read as {article} {kind}; quote it if it is text",
        problem_mark=node.start_mark,
    )


def _too_deep(mark: yaml.Mark) -> TooLarge:
    return TooLarge(problem=f"it is nested more than {_DEEPEST} deep", problem_mark=mark)
