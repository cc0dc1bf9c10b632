"""DDTREE's own tests, run by the lab's SGLang interpreter on the set as a host would have it.

They need torch, which opsctl's own environment has not; tests/ddtree says what they cover.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import platformdirs
import pytest

from opsctl import patchset
from opsctl.lab.once import run_once

REPOSITORY = Path(__file__).resolve().parents[2]
PINS: tuple[str, ...] = (
    "pytest==9.2.0",
    "hypothesis==6.170.17",
    "pytest-timeout==2.4.0",
    "unidiff==1.0.1",
)
PINS += ("platformdirs==4.14.8",)


def make_site() -> Path:
    """pytest and its company for the lab's Python 3.11, kept below the cache folder."""
    site = platformdirs.user_cache_path("opsctl") / "test-site" / "-".join(sorted(PINS))
    if not site.is_dir():
        draft = site.with_name(site.name + ".new")
        pip = [sys.executable, "-m", "pip", "install", "-qq", "--target", str(draft), "--upgrade"]
        options = ["--python-version=3.11", "--only-binary=:all:", "--no-warn-conflicts"]
        subprocess.run([*pip, *options, *PINS], check=True)
        draft.rename(site)
    return site


@pytest.mark.lab
@pytest.mark.wheel
@pytest.mark.timeout(1200)
def test_ddtree(tmp_path: Path) -> None:
    package, logs = tmp_path / "package", tmp_path / "logs"
    logs.mkdir()
    patched = REPOSITORY / "tests" / "ddtree" / "patched.py"
    subprocess.run([sys.executable, str(patched), str(package)], check=True)
    status = run_once(
        "opsctl-ddtree",
        [
            *("{python}", "-m", "pytest", "-q", "-c", "tests/ddtree/pytest.ini", "tests/ddtree"),
            "--junitxml=/run/logs/ddtree.xml",
        ],
        read_only={
            REPOSITORY: "/run/opsctl",
            make_site(): "/run/site",
            package: "/run/package",
            # The incident's test builds a package of its own, and no index is reached inside.
            patchset.default_cache(): "/run/cache/opsctl/wheels",
        },
        writable={logs: "/run/logs"},
        environment={
            "PYTHONPATH": "/run/site",
            "DDTREE_PACKAGE": "/run/package",
            "XDG_CACHE_HOME": "/run/cache",
        },
        working_folder="/run/opsctl",
    )
    assert status == 0
