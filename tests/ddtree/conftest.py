"""Put the patched SGLang first on sys.path; without torch there is nothing to test here.

The package is the folder in DDTREE_PACKAGE (as `patched.py` writes it), or else the pinned
wheel with the set applied, in a temporary folder.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    # Before anything imports triton or sglang.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    sys.path.insert(0, str(HERE))
    package = os.environ.get("DDTREE_PACKAGE")
    if package is None:
        import patched

        _folder = tempfile.TemporaryDirectory(prefix="ddtree-")
        package = str(patched.write(Path(_folder.name)))
    sys.path[:0] = [package, str(HERE.parents[1] / "opsctl" / "lab" / "shim")]
    os.environ["DDTREE_PACKAGE"] = package
