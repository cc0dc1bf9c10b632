"""Reading a file must not cost what talking to a host does."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"httpx", "paramiko", "fabric", "yaml", "pydantic", "rich", "hyperscan", "orjson"}


def loaded(code: str) -> set[str]:
    code += "; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()} & HEAVY


def test_the_journal_package_is_light() -> None:
    assert loaded("import opsctl.journal, opsctl.journal.reader") == set()


def test_what_is_needed_is_loaded_when_it_is() -> None:
    code = (
        "import io, opsctl.journal as j;"
        """list(j.Reader(io.BytesIO(b'{"MESSAGE":"x"}'), j.Selection(['x'])))"""
    )
    assert loaded(code) == {"hyperscan", "orjson"}
    assert "yaml" in loaded("from opsctl.journal import diagnose; diagnose([])")
    assert "httpx" in loaded("from opsctl.sglang import SglangClient")


def test_a_name_that_is_not_there() -> None:
    import opsctl.journal
    import opsctl.sglang

    for module in (opsctl.journal, opsctl.sglang):
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = module.nothing
        for name in module.__all__:
            assert getattr(module, name) is not None
