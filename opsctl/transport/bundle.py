"""The host program as one piece of source text that needs no file on the host."""

from __future__ import annotations

import base64
import functools
import json
import zlib
from importlib import resources

# Reads so many bytes of source from stdin and runs them; what follows on stdin is requests.
# Single quotes around it mean the same to sh, bash, zsh, fish and csh, so it holds none.
BOOT = "import sys;b=sys.stdin.buffer;exec(b.read(int(b.readline())))"
# -I: modules in the connecting user's home and PYTHON* variables are not the program's.
# -X utf8: nor is the locale. -u: an answer leaves when it is written.
OPTIONS = ("-I", "-X", "utf8", "-u")

_LOADER = """
import base64, importlib.abc, importlib.util, json, sys, zlib
_S = json.loads(zlib.decompress(base64.b64decode("{sources}")))

class _InMemory(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def find_spec(self, name, path=None, target=None):
        if name not in _S:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=name == "{package}")

    def get_source(self, name):
        return _S[name]

sys.dont_write_bytecode = True
sys.meta_path.insert(0, _InMemory())
{start}
"""

PACKAGE = "opsctl_hostside"


@functools.cache
def _sources() -> str:
    folder = resources.files("opsctl.hostside")
    modules = {
        PACKAGE if f.name == "__init__.py" else f"{PACKAGE}.{f.name[:-3]}": f.read_text("utf-8")
        for f in folder.iterdir()
        if f.name.endswith(".py")
    }
    packed = zlib.compress(json.dumps(modules, sort_keys=True).encode(), 9)
    return base64.b64encode(packed).decode()


def payload(nonce: str) -> bytes:
    """What goes to stdin first: the length line that `BOOT` reads, and the program."""
    text = _program(f'from {PACKAGE}.server import main\nmain("{nonce}")').encode()
    return b"%d\n%s" % (len(text), text)


def guard_program() -> str:
    """The same modules as the program of the guard's unit; its argument is the state folder."""
    return _program(f"from {PACKAGE}.guardian import main\nmain(sys.argv[1])")


def _program(start: str) -> str:
    return _LOADER.format(sources=_sources(), package=PACKAGE, start=start)
