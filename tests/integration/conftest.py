"""A lab for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from workbench import LAB, Bench

from opsctl import lab, resources
from opsctl.inventory import Inventory


@pytest.fixture(scope="session")
def _lab_running() -> Iterator[None]:
    source = yaml.safe_load(resources.bundled("inventory.yaml").read_text(encoding="utf-8"))
    book = Inventory.model_validate(source)
    service = book.hosts["ct200-lab"].services["sglang-k26-ddtree"]
    lab.reset(LAB, service)
    try:
        yield
    finally:
        lab.down(LAB)


@pytest.fixture
def bench(_lab_running: None, tmp_path: Path) -> Bench:
    """A bench whose server is up."""
    source = yaml.safe_load(resources.bundled("inventory.yaml").read_text(encoding="utf-8"))
    host = source["hosts"]["ct200-lab"]
    host["lab"] = LAB
    source["hosts"] = {LAB: host}
    source["defaults"] = {"host": LAB}
    found = Bench(tmp_path, source)
    outcome = found.opsctl("wait")
    assert outcome.exit_code == 0, outcome.said
    return found
