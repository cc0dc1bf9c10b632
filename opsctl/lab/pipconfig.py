"""The machine's own pip configuration, carried into the container that builds the tree.

pip inside the container sees none of it otherwise: neither the index of a company mirror nor
a folder of wheels, and would quietly fetch a CUDA torch of several GB from elsewhere.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Certificate bundles by the names that pip, requests, uv and OpenSSL read.
_CERTIFICATES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
# Keys that say where pip writes or how it talks on the machine itself.
_IGNORED = {"cache-dir", "user", "target", "prefix", "root", "require-virtualenv", "log", "python"}


@dataclass(frozen=True, slots=True)
class PipConfig:
    """Environment variables for pip, and the paths on this machine that they name."""

    environment: Mapping[str, str]
    paths: tuple[str, ...]


def parse(listing: str) -> dict[str, str]:
    """`pip config list` as PIP_* variables; its ``:env:`` section wins, as in pip."""
    ranked: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        name, separator, literal = line.partition("=")
        section, dot, key = name.strip().rpartition(".")
        if not (separator and dot) or key in _IGNORED:
            continue
        try:
            value = str(ast.literal_eval(literal.strip()))
        except (ValueError, SyntaxError):
            continue
        rank = {":env:": 2, "install": 1, "global": 0}.get(section, -1)
        variable = "PIP_" + key.upper().replace("-", "_")
        if rank >= ranked.get(variable, (0, ""))[0]:
            ranked[variable] = (rank, " ".join(value.split()))
    return {variable: value for variable, (_, value) in sorted(ranked.items())}


def named_paths(values: Iterable[str]) -> tuple[str, ...]:
    """The absolute paths and file:// URLs among space-separated words that exist here.

    The pages of an index in a folder link to files beside it (``../../files/x.whl``), so for
    a URL the folder above comes along, unless that is one of the machine's top folders.
    """
    found: dict[str, None] = {}
    for value in values:
        for word in value.split():
            url = urlsplit(word)
            path = Path(unquote(url.path) if url.scheme == "file" else word)
            if not path.is_absolute() or not path.exists():
                continue
            beside = path.parent
            wider = url.scheme == "file" and len(beside.parts) > 2
            found[str(beside if wider else path)] = None
    return tuple(found)


def read() -> PipConfig:
    """Ask this machine's pip; a machine without pip has only its environment variables."""
    environment = {}
    for python in (sys.executable, "python3"):
        command = [python, "-m", "pip", "--disable-pip-version-check", "config", "list"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            environment = parse(done.stdout)
            break
    for name in (*_CERTIFICATES, *_PROXIES):
        if os.environ.get(name):
            environment[name] = os.environ[name]
    return PipConfig(environment, named_paths(environment.values()))
