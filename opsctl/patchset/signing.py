"""A set's signature: OpenSSH's own (`ssh-keygen -Y`), over every byte of its folder.

Sources: ssh-keygen(1), "-Y" and "ALLOWED SIGNERS"; OpenSSH's PROTOCOL.sshsig.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from opsctl.errors import PatchError, Refused, UsageError
from opsctl.patchset._apply import sha256
from opsctl.patchset._load import PatchSet

SIGNATURE = "patchset.sig"
NAMESPACE = "opsctl-patchset"
_FORMAT = "opsctl-patchset/1"
_TOOL = "ssh-keygen"
_TIMEOUT = 30.0
_SIGN_TIMEOUT = 300.0  # somebody types a passphrase, or looks for a security key
_IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*")
# A key type and the key of one line, after the principals and options: ssh-keygen(1).
_KEY = re.compile(rb"\s(?:sk-)?(?:ssh|ecdsa)-[\w.@-]+\s+AAAA[A-Za-z0-9+/]+")
_FINGERPRINT = re.compile(r"with (\S+) key (SHA256:\S+)")


@dataclass(frozen=True, slots=True)
class Signer:
    """Who vouches for a set. `principal` is as the file of allowed signers names them."""

    principal: str
    key: str  # type and fingerprint, as in `ED25519 SHA256:…`


@dataclass(frozen=True, slots=True)
class Signed:
    """A signature that was made; `line` is for a file of allowed signers."""

    path: Path
    key: str
    line: str


def manifest(patchset: PatchSet) -> bytes:
    """What is signed: name, version, target, and the hash of every file of the folder.

    The digest is of the set as it was loaded: a file that changes between the load and the
    check makes the two disagree, instead of passing unseen. Names are JSON text, so that no
    file name can pass for two lines.

    Raises:
        PatchError: something in the folder is no plain file, or cannot be read.
    """
    target = patchset.target
    content = {
        "format": _FORMAT,
        "name": patchset.name,
        "version": patchset.version,
        "for": [target.distribution, target.version, target.package],
        "digest": patchset.digest,
        "files": _hashes(patchset.dir),
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _hashes(root: Path) -> dict[str, str | None]:
    hashes: dict[str, str | None] = {}
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        # Bytecode is no part of a set (see `load`), and comes and goes with every test run.
        if path == SIGNATURE or "__pycache__" in path.split("/"):
            continue
        if file.is_symlink() or not (file.is_dir() or file.is_file()):
            raise PatchError(
                f"{file}: not a plain file, and so not to be signed",
                remedy="put the file itself there",
                code="patch_set_invalid",
            )
        if file.is_dir():
            continue
        try:
            hashes[path] = sha256(file.read_bytes())
        except OSError as error:
            raise PatchError(
                f"cannot read {file}: {error.strerror}", code="patch_set_unreadable"
            ) from None
    return hashes


def sign(patchset: PatchSet, key: Path, identity: str) -> Signed:
    """Sign the set with the private key `key`, or with the agent's key of that `.pub`.

    Raises:
        UsageError: no such key, a wrong passphrase, an identity that a file of allowed
            signers cannot hold, or ssh-keygen is missing.
        PatchError: something in the set's folder is no plain file.
    """
    if not _IDENTITY.fullmatch(identity):
        raise UsageError(
            f"{identity!r} cannot name a signer",
            remedy="give --identity letters, digits and . _ @ + -, such as ann@example.org",
        )
    if not key.is_file():
        raise UsageError(f"{key}: no such key", remedy="make one: ssh-keygen -t ed25519 -f FILE")
    content = manifest(patchset)
    done = _run(["-Y", "sign", "-n", NAMESPACE, "-f", str(key)], content, timeout=_SIGN_TIMEOUT)
    if done.returncode != 0:
        raise UsageError(
            f"ssh-keygen did not sign with {key}: {_said(done)}",
            remedy="see that it is a private key, or the .pub of one that the agent holds",
            code="not_signed",
        )
    path = patchset.dir / SIGNATURE
    _replace(path, done.stdout)
    used, public = _key_of(path, content), _public_key(done.stdout)
    return Signed(path, used or "", f'{identity} namespaces="{NAMESPACE}" {public}')


def verify(patchset: PatchSet, allowed_signers: Path) -> Signer:
    """Who signed the set as it is, among those that `allowed_signers` names.

    Raises:
        Refused: it is unsigned, was altered after it was signed, or nobody named there has
            signed it for this purpose (`patch_set_unsigned`, `_altered`, `_signer_unknown`,
            `_signer_refused`).
        UsageError: the file of allowed signers cannot be read, or ssh-keygen is missing.
        PatchError: something in the set's folder is no plain file.
    """
    _require_signers(allowed_signers)
    signature = patchset.dir / SIGNATURE
    if signature.is_symlink() or not signature.is_file():
        raise Refused(
            f"the patch set {patchset.label} in {patchset.dir} is not signed, and "
            f"{allowed_signers} says who must",
            remedy=f"opsctl patches sign {patchset.name} --key FILE, by one of those",
            code="patch_set_unsigned",
        )
    content = manifest(patchset)
    key = _key_of(signature, content)
    if key is None:
        raise Refused(
            f"the signature of {patchset.label} in {patchset.dir} does not fit: a file was "
            "changed, added or removed since, or it was made for something else",
            remedy="return the folder to what was signed (git status, git diff), or look the "
            f"change through and sign again: opsctl patches sign {patchset.name} --key FILE",
            code="patch_set_altered",
        )
    found = _run(["-Y", "find-principals", "-s", str(signature), "-f", str(allowed_signers)], b"")
    principals = _principals(found.stdout) if found.returncode == 0 else []
    if not principals:
        raise Refused(
            f"the patch set {patchset.label} is signed with the key {key}, which "
            f"{allowed_signers} does not name as valid now{_hint(found)}",
            remedy="have one of those sign it, or add the key to that file if you trust it",
            code="patch_set_signer_unknown",
        )
    why = ""
    for principal in principals:
        argv = ["-Y", "verify", "-n", NAMESPACE, "-I", principal, "-s", str(signature)]
        done = _run([*argv, "-f", str(allowed_signers)], content)
        if done.returncode == 0:
            return Signer(principal, key)
        why = _said(done)
    raise Refused(
        f"the patch set {patchset.label} is signed by {', '.join(principals)} with the key {key}, "
        f"but {allowed_signers} does not let it sign patch sets now: {why}",
        remedy=f'see valid-before, valid-after and namespaces="{NAMESPACE}" of its line there, or '
        "have somebody else sign",
        code="patch_set_signer_refused",
    )


def _require_signers(path: Path) -> None:
    """ssh-keygen reads a file of garbage as one that names nobody; an empty one does name nobody.

    Raises:
        UsageError: it cannot be read, or has lines and none of them names a key.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the allowed signers in {path}: {error.strerror}",
            remedy="correct allowed_signers in the inventory, or --allowed-signers",
            code="allowed_signers_unreadable",
        ) from None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(b"#")]
    if lines and not any(_KEY.search(line) for line in lines):
        raise UsageError(
            f"{path} is no file of allowed signers: no line of it is like "
            "`ann@example.org ssh-ed25519 AAAA…`",
            remedy="put in the line that `opsctl patches sign` prints (ssh-keygen(1), ALLOWED "
            "SIGNERS)",
            code="allowed_signers_invalid",
        )


def _principals(output: bytes) -> list[str]:
    """One line for each that matches; a line may hold several names and patterns."""
    names = [name for line in _text(output).splitlines() for name in line.strip().split(",")]
    return [name for name in names if name and not name.startswith("!")]


def _key_of(signature: Path, content: bytes) -> str | None:
    """The key whose signature of `content` this is; None where it is not one."""
    argv = ["-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(signature)]
    done = _run(argv, content)
    match = _FINGERPRINT.search(_text(done.stdout + done.stderr))
    if "option" in _text(done.stderr) and "usage" in _text(done.stderr):
        raise UsageError(
            f"this machine's ssh-keygen cannot check signatures: {_said(done)}",
            remedy="install OpenSSH 8.3 or newer",
            code="ssh_keygen_too_old",
        )
    return f"{match[1]} {match[2]}" if done.returncode == 0 and match else None


def _public_key(signature: bytes) -> str:
    """`ssh-ed25519 AAAA…`, which an SSHSIG blob holds after its magic and version."""
    body = b"".join(line for line in signature.splitlines() if not line.startswith(b"-----"))
    try:
        blob = base64.b64decode(body)
        (length,) = struct.unpack(">I", blob[10:14])
        public = blob[14 : 14 + length]
        (of_type,) = struct.unpack(">I", public[:4])
        kind = public[4 : 4 + of_type].decode("ascii")
    except (binascii.Error, struct.error, UnicodeDecodeError):
        raise UsageError("ssh-keygen wrote no signature", code="not_signed") from None
    return f"{kind} {base64.b64encode(public).decode()}"


def _run(
    arguments: list[str], data: bytes, *, timeout: float = _TIMEOUT
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [_TOOL, *arguments], input=data, capture_output=True, timeout=timeout, check=False
        )
    except FileNotFoundError:
        raise UsageError(
            "ssh-keygen is not installed here, and signatures of patch sets are made and "
            "checked with it",
            remedy="install OpenSSH's client (Debian: apt-get install openssh-client)",
            code="ssh_keygen_missing",
        ) from None
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"ssh-keygen gave no answer within {timeout:.0f} s",
            remedy="see whether it waits for a passphrase or a security key",
            code="ssh_keygen_hangs",
        ) from None


def _replace(path: Path, data: bytes) -> None:
    """Whole or not at all: a torn signature would read as an altered set."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".opsctl-", delete=False) as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o644)
    Path(file.name).replace(path)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = _text(done.stderr).strip().splitlines()
    return "; ".join(lines[:3]) or f"exit status {done.returncode}"


def _hint(done: subprocess.CompletedProcess[bytes]) -> str:
    """What ssh-keygen says beside "no match": a line of the file that it cannot read."""
    said = _text(done.stderr).strip()
    return f" ({said.splitlines()[0]})" if said and "No principal matched" not in said else ""
