"""A lab for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from workbench import LAB, Bench


@pytest.fixture(scope="session")
def _lab_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    bench = Bench(tmp_path_factory.mktemp("lab"))
    made = bench.opsctl("lab", "reset", LAB)
    assert made.exit_code == 0, made.said
    try:
        yield
    finally:
        bench.opsctl("lab", "down", LAB)


@pytest.fixture
def bench(_lab_running: None, tmp_path: Path) -> Bench:
    """A bench whose server is up."""
    found = Bench(tmp_path)
    outcome = found.opsctl("wait")
    assert outcome.exit_code == 0, outcome.said
    return found
