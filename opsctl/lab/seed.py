"""What makes one lab out of the shared tree: its keys, its sshd, its SGLang unit.

The seed is a folder laid over the tree at boot, so a lab needs no set-up over SSH.
"""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

from opsctl.inventory.models import Service
from opsctl.lab.recipe import PACKAGE
from opsctl.lab.state import SSH_PORT
from opsctl.units.template import render_dropin, render_files

SHIM = "/opt/opsctl-lab/shim"
MODELS = "/opt/models"
FAULT_FILE = "/run/opsctl-lab/fault"

# The CPU instead of the GPU. All else, speculation included, is in inventory.yaml.
CPU_ARGUMENTS = (
    "--device=cpu",
    "--dtype=float32",
    "--attention-backend=triton",  # the shim's torch backend answers to this name
    *("--cuda-graph-bs", "1", "2", "4"),  # on the shim's stand-in: 3 is padded, 5 has no graph
    "--mem-fraction-static=0.3",
    "--max-total-tokens=4096",
    "--max-running-requests=6",
    "--chunked-prefill-size=256",  # so that a prompt of some hundred tokens takes several
    "--sleep-on-idle",  # an idle scheduler would keep a core busy, one for each lab
)

# The same authorized key opens root, ops (who may sudo) and nosudo (who may not).
_SSHD = """\
Port {port}
ListenAddress {address}
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowTcpForwarding yes
MaxSessions 50
MaxStartups 100:30:300
"""


def make_key(path: Path, comment: str) -> str:
    """Generate an ed25519 key pair at `path`; returns the public key's line."""
    for old in (path, path.with_suffix(".pub")):
        old.unlink(missing_ok=True)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return path.with_suffix(".pub").read_text(encoding="utf-8").strip()


def host_pattern(address: str) -> str:
    """How known_hosts names a server on a port other than 22."""
    return f"[{address}]:{SSH_PORT}"


def write(
    folder: Path,
    *,
    name: str,
    address: str,
    service: Service,
    user_key: str,
    templates: Path,
    start: bool,
) -> str:
    """Write the seed of the lab `name` to `folder`; returns its host's public key line.

    Raises:
        UsageError: the unit template is missing or faulty.
    """
    shutil.rmtree(folder, ignore_errors=True)
    ssh = folder / "etc/ssh"
    (ssh / "sshd_config.d").mkdir(parents=True)
    host_key = make_key(ssh / "ssh_host_ed25519_key", f"root@{name}")
    (ssh / "authorized_keys").write_text(user_key + "\n", encoding="utf-8")
    (ssh / "sshd_config.d/10-opsctl-lab.conf").write_text(
        _SSHD.format(address=address, port=SSH_PORT), encoding="utf-8"
    )
    etc = folder / "etc"
    (etc / "machine-id").write_text(uuid.uuid4().hex + "\n", encoding="utf-8")
    (etc / "hostname").write_text(name + "\n", encoding="utf-8")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n", encoding="utf-8")
    (etc / "default").mkdir()
    (etc / "default/locale").write_text("LANG=C.UTF-8\n", encoding="utf-8")
    tmpfiles = etc / "tmpfiles.d"
    tmpfiles.mkdir()
    runtime = Path(FAULT_FILE).parent
    (tmpfiles / "opsctl-lab.conf").write_text(f"d {runtime} 0755 root root\n", encoding="utf-8")
    _write_unit(etc / "systemd/system", name, service, templates, start=start)
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(PACKAGE / "shim", folder / SHIM.lstrip("/"), ignore=ignore)
    shutil.copytree(PACKAGE / "models", folder / MODELS.lstrip("/"), ignore=ignore)
    _set_modes(folder)
    return host_key


def _set_modes(folder: Path) -> None:
    """The modes of a system's files whatever the umask here: the seed is laid over /etc."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if path.is_symlink():
            continue
        private = path.name.endswith("_key")
        path.chmod(0o755 if path.is_dir() else 0o600 if private else 0o644)


def _write_unit(system: Path, name: str, service: Service, templates: Path, *, start: bool) -> None:
    dropin = system / f"{service.unit}.d"
    dropin.mkdir(parents=True)
    for path, text in render_files(service, templates).items():
        (system.parents[2] / path.lstrip("/")).write_text(text, encoding="utf-8")
    rendered = render_dropin(
        templates, lab=name, shim=SHIM, fault_file=FAULT_FILE, arguments=CPU_ARGUMENTS
    )
    (dropin / "10-lab-cpu.conf").write_text(rendered, encoding="utf-8")
    if start:
        wanted = system / "multi-user.target.wants"
        wanted.mkdir()
        (wanted / service.unit).symlink_to(Path("..") / service.unit)
