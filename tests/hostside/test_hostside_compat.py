"""The host program runs on any Python from 3.8 on, with nothing but its standard library."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import opsctl.hostside

FOLDER = Path(opsctl.hostside.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))
# Of the standard library, but younger than 3.8.
YOUNG_MODULES = {"graphlib", "tomllib", "zoneinfo"}
YOUNG_NAMES = {
    *("removeprefix", "removesuffix", "cache", "pairwise", "batched", "bit_count", "lcm"),
    *("to_thread", "TaskGroup", "ExceptionGroup", "add_note", "StrEnum", "file_digest", "aclosing"),
    *("anext", "aiter", "hardlink_to", "is_junction", "walk_up", "packages_distributions"),
    *("orig_argv", "stdlib_module_names", "exception", "EncodingWarning", "is_relative_to"),
    *("chdir", "TypeAlias", "ParamSpec", "Self", "override", "process_cpu_count"),
}
BUILTIN_GENERICS = {"dict", "list", "tuple", "set", "frozenset", "type"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_is_of_python_3_8(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text, path.name, feature_version=(3, 8))
    if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body):
        assert "from __future__ import annotations" in text
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.Attribute) and node.attr in YOUNG_NAMES), ast.dump(node)
        if isinstance(node, ast.Call):
            given = {keyword.arg for keyword in node.keywords}
            assert not given & {"strict", "root_dir", "slots", "kw_only"}, ast.dump(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names}
            assert not names & YOUNG_NAMES, ast.dump(node)
    for line, value in _evaluated(tree):
        for node in ast.walk(value):
            subscript = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)
            if subscript:
                assert isinstance(node, ast.Subscript)
                assert isinstance(node.value, ast.Name)
                assert node.value.id not in BUILTIN_GENERICS, f"line {line}: quote it"


def _evaluated(tree: ast.Module) -> list[tuple[int, ast.expr]]:
    """Module-level expressions that run, unlike annotations: type aliases and defaults."""
    found: list[tuple[int, ast.expr]] = []
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            found.append((node.lineno, node.value))
        elif isinstance(node, ast.FunctionDef):
            found += [(node.lineno, default) for default in node.args.defaults]
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_a_module_imports_the_standard_library_and_its_own_kind(path: Path) -> None:
    own = {module.stem for module in MODULES}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            tops = {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            tops = {str(node.module).partition(".")[0]}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1, "the program is one flat package on the host"
            names = {node.module} if node.module else {alias.name for alias in node.names}
            assert names <= own
            continue
        else:
            continue
        assert tops <= sys.stdlib_module_names - YOUNG_MODULES, tops


def test_the_checks_see_what_they_are_for() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n  case 1: pass\n", feature_version=(3, 8))
    tree = ast.parse("A = dict[str, int]\ndef f(x: list[int] = []) -> None: ...\n")
    evaluated = _evaluated(tree)
    assert [line for line, _ in evaluated] == [1, 2]
    assert isinstance(evaluated[0][1], ast.Subscript)
