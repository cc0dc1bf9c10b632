"""A host put into somebody's inventory, by lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsctl.discovery import add_host
from opsctl.errors import InventoryError, UsageError

ENTRY = "  new:\n    lab: x # of theirs\n"
PATH = Path("inventory.yaml")

ALPHA = "version: 1 # one\n\nhosts:\n  alpha: # first\n    lab: a\n"


def test_all_else_stays_to_the_byte() -> None:
    assert add_host(ALPHA, ENTRY, "new", PATH) == f"{ALPHA}\n{ENTRY}"


@pytest.mark.parametrize(
    "after",
    [
        "\n# The defaults.\ndefaults:\n  host: alpha\n",
        "defaults: {host: alpha}\n",
        "\n\n# Only a word at the end.\n",
        "",
    ],
)
def test_what_follows_the_hosts_stays_with_what_it_is_about(after: str) -> None:
    inside = "  # beta: is gone\n"
    text = ALPHA + inside + after
    assert add_host(text, ENTRY, "new", PATH) == f"{ALPHA}{inside}\n{ENTRY}{after}"


def test_another_indentation_and_no_newline_at_the_end() -> None:
    text = "hosts:\n    alpha:\n        lab: a"
    added = "\n\n    new:\n      lab: x # of theirs\n"
    assert add_host(text, ENTRY, "new", PATH) == text + added


def test_a_block_of_text_at_the_end() -> None:
    text = "hosts:\n  a:\n    x: |\n      one\n      # two\nversion: 1\n"
    head, tail = text[: text.index("version")], "version: 1\n"
    assert add_host(text, ENTRY, "new", PATH) == f"{head}\n{ENTRY}{tail}"


def test_a_host_of_that_name_is_refused_with_its_line() -> None:
    with pytest.raises(UsageError, match=r"inventory.yaml:4: there is a host 'alpha' already"):
        add_host(ALPHA, "  alpha:\n    lab: x\n", "alpha", PATH)


def test_hosts_in_braces_are_left_to_a_person() -> None:
    with pytest.raises(UsageError, match="not a block"):
        add_host("version: 1\nhosts: {alpha: {lab: a}}\n", ENTRY, "new", PATH)


@pytest.mark.parametrize("text", ["", "version: 1\n", "- a\n", "hosts: [\n", "hosts: 1\n"])
def test_what_is_no_inventory_is_refused(text: str) -> None:
    with pytest.raises(InventoryError):
        add_host(text, ENTRY, "new", PATH)
