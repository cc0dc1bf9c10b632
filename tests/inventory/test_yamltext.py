"""YAML that grows without bounds is refused, at once, wherever a person's file is read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from opsctl import inventory, playbook, yamltext
from opsctl.errors import InventoryError, PatchError, UsageError
from opsctl.patchset import load as load_patchset

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
MERGES = "m0: &m0 {k0: 1}\n" + "".join(
    f"m{n}: &m{n}\n  <<: [{', '.join([f'*m{n - 1}'] * 9)}]\n" for n in range(1, 30)
)
DEEP = "[" * 5000 + "]" * 5000
ENDLESS = "a: &a [*a]\n"
BOMBS = pytest.mark.parametrize("text", [BOMB, MERGES, DEEP, ENDLESS], ids="bmde")


@BOMBS
def test_it_is_refused_at_once_and_everywhere(tmp_path: Path, text: str) -> None:
    began = time.monotonic()
    with pytest.raises(yamltext.TooLarge):
        yamltext.load(text)
    path = tmp_path / "inventory.yaml"
    path.write_text(text)
    with pytest.raises(InventoryError, match=r"inventory\.yaml:\d+: ") as caught:
        inventory.load(path)
    assert (caught.value.exit_code, bool(caught.value.remedy)) == (2, True)
    with pytest.raises(UsageError, match=r":\d+: "):
        playbook.load(path)
    (tmp_path / "patchset.yaml").write_text(text)
    with pytest.raises(PatchError):
        load_patchset(tmp_path)
    assert time.monotonic() - began < 120, "unbounded, it would take hours"


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text(BOMB)
    with pytest.raises(InventoryError, match="more than 100000 values"):
        inventory.load(path)


def test_aliases_in_measure_are_for_use() -> None:
    text = "base: &base {a: 1}\none: *base\ntwo:\n  <<: *base\n  b: 2\n"
    assert yamltext.load(text) == {"base": {"a": 1}, "one": {"a": 1}, "two": {"a": 1, "b": 2}}
    assert yamltext.compose("") is None
    assert yamltext.load("") is None


@pytest.mark.parametrize(
    "value",
    [
        *("2026-13-45", "2026-01-01 99:00:00", "0b_", "0x_", "1" * 5000, "0x" + "f" * 5000),
        *("!!bool x", "!!int ''", "!!int x", "!!float x", "!!timestamp x"),
    ],
    ids=lambda value: value[:12],
)
def test_what_is_not_of_its_type_is_a_fault_of_the_text_with_a_line(
    tmp_path: Path, value: str
) -> None:
    with pytest.raises(yaml.MarkedYAMLError) as caught:
        yamltext.load(f"a: 1\nb: [{value}]\n")
    assert caught.value.problem_mark is not None
    assert caught.value.problem_mark.line == 1
    path = tmp_path / "patchset.yaml"
    path.write_text(f"name: {value}\n")
    with pytest.raises(PatchError, match=r"patchset\.yaml:1: this cannot be read as an? "):
        load_patchset(tmp_path)
    with pytest.raises(InventoryError, match=r"patchset\.yaml:1: "):
        inventory.load(path)
    with pytest.raises(UsageError, match=r":\d+: "):
        playbook.load(path)


@given(
    st.recursive(
        st.integers() | st.text("ab"),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("abc", min_size=1), inner),
        max_leaves=30,
    )
)
def test_all_else_is_read_as_ever(value: object) -> None:
    assert yamltext.load(yaml.safe_dump(value)) == value
