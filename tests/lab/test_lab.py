"""The lab itself: booted for real, looked into over SSH, and gone without a trace."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from opsctl import lab, resources
from opsctl.errors import LabUnavailable, Refused, UsageError
from opsctl.inventory.models import Service
from opsctl.lab import needs, pipconfig, recipe, state, tree
from opsctl.lab.process import Process
from opsctl.units.template import render_files

NAMES = ("test-lab-a", "test-lab-b")


def make_service(**changes: Any) -> Service:
    fields: dict[str, Any] = {
        "unit": "sglang-k26-ddtree.service",
        "python": "/opt/sglang/bin/python",
        "port": 30001,
        "model": {"path": "/opt/models/target", "served_name": "tiny"},
    }
    return Service.model_validate({**fields, **changes})


def inside(name: str, command: str, user: str = "root") -> str:
    argv = lab.ssh_argv(name, command)
    argv = [word.replace("root@", f"{user}@") for word in argv]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def traces(name: str) -> list[str]:
    """Whatever of a lab can be found on this machine outside its state folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            mounts = (entry / "mountinfo").read_text(encoding="utf-8")
        except OSError:
            continue
        if f"labs/{name}/" in command or f"--machine={name}" in command:
            found.append(f"process {command}")
        if f"labs/{name}/" in mounts:
            found.append(f"mount in {entry.name}")
    found += [str(path) for path in Path("/sys/fs/cgroup").glob(f"*/opsctl-lab-{name}-*")]
    return found


# ---------------------------------------------------------------- what needs no lab


def machine(**changes: Any) -> needs.Machine:
    facts: dict[str, Any] = {
        "platform": "linux",
        "uid": 0,
        "which": lambda program: f"/usr/bin/{program}",
        "filesystems": "nodev\ttmpfs\nnodev\toverlay\n\text4\n",
        "has_keyring": True,
    }
    return needs.Machine(**{**facts, **changes})


def test_a_machine_with_everything() -> None:
    assert needs.missing(machine()) is None


@pytest.mark.parametrize(
    ("changes", "message", "remedy"),
    [
        ({"platform": "darwin"}, "runs darwin", "Linux"),
        ({"uid": 1000}, "needs root", "sudo opsctl lab up"),
        ({"filesystems": "\text4\n"}, "no overlayfs", "modprobe overlay"),
        ({"has_keyring": False}, "debian-archive-keyring", "apt-get install debian-archive-key"),
        (
            {"which": lambda program: None if program.startswith(("systemd", "deb")) else "/x"},
            "debootstrap systemd-container",
            "sudo apt-get install debootstrap systemd-container",
        ),
        # What to install is said first: root alone would not help.
        ({"uid": 1000, "which": lambda program: None}, "lacks", "apt-get install"),
    ],
)
def test_what_is_missing(changes: dict[str, Any], message: str, remedy: str) -> None:
    problem = needs.missing(machine(**changes))
    assert isinstance(problem, LabUnavailable)
    assert problem.exit_code == 3
    assert message in problem.message
    assert remedy in problem.remedy


def test_pip_configuration_by_rank() -> None:
    listing = "\n".join(
        [
            "global.index-url='https://mirror.example/simple'",
            "global.timeout='15'",
            "install.timeout='30'",
            ":env:.timeout='60'",
            "user.timeout='20'",
            "global.extra-index-url='\\nhttps://a.example\\nhttps://b.example'",
            "global.cache-dir='/var/cache/pip'",
            "not a setting",
        ]
    )
    assert pipconfig.parse(listing) == {
        "PIP_EXTRA_INDEX_URL": "https://a.example https://b.example",
        "PIP_INDEX_URL": "https://mirror.example/simple",
        "PIP_TIMEOUT": "60",
    }


def test_paths_that_pip_needs(tmp_path: Path) -> None:
    wheels, index = tmp_path / "wheels", tmp_path / "mirror/simple"
    wheels.mkdir()
    index.mkdir(parents=True)
    values = [f"{wheels} {tmp_path}/none", f"file://{index} https://a.example/simple", "relative"]
    # An index in a folder links to files beside itself.
    assert pipconfig.named_paths(values) == (str(wheels), str(index.parent))


def test_the_digest_follows_every_input() -> None:
    base = recipe.Recipe()
    changed = [
        recipe.Recipe(suite="trixie"),
        recipe.Recipe(debian=("systemd",)),
        recipe.Recipe(requirements="numpy==1"),
        recipe.Recipe(finish="true"),
        recipe.Recipe(version=base.version + 1),
    ]
    assert len({one.digest for one in (base, *changed)}) == len(changed) + 1


def test_a_process_is_not_its_number() -> None:
    me = Process.of(os.getpid())
    assert me is not None
    assert me.alive()
    assert not Process(me.pid, me.started - 1, me.boot).alive()
    assert not Process(me.pid, me.started, "another boot").alive()


def test_no_such_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert lab.status("nothing") is None
    assert lab.all_labs() == []
    assert lab.down("nothing") is False
    with pytest.raises(Refused, match="no lab nothing is running") as caught:
        lab.connection("nothing")
    assert caught.value.remedy == "opsctl lab up nothing"


@pytest.mark.parametrize("name", ["", "UPPER", "a/b", "-a", "a.b", "x" * 45])
def test_names_that_no_host_can_have(name: str) -> None:
    with pytest.raises(UsageError, match="name of a lab"):
        lab.up(name, make_service())


def test_unfinished_and_unused_trees_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache = recipe.cache_folder()
    for folder in ("old", "new"):
        (cache / folder / "etc").mkdir(parents=True)
    tree.prune("new", lambda event: None)
    assert [entry.name for entry in cache.iterdir()] == ["new"]


@pytest.mark.lab
def test_a_failed_build_is_no_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    killed = recipe.cache_folder() / ".building-000000000000/tree"
    killed.mkdir(parents=True)
    wrong = recipe.Recipe(suite="no-such-suite")
    with pytest.raises(LabUnavailable, match="failed at 'Debian'") as caught:
        tree.ensure(wrong, lambda event: None)
    assert caught.value.code == "lab_build_failed"
    assert str(recipe.cache_folder()) in caught.value.remedy
    assert not killed.exists()
    assert not (recipe.cache_folder() / wrong.digest).exists()


@pytest.mark.lab
def test_a_unit_that_cannot_be_rendered_leaves_no_lab() -> None:
    with pytest.raises(UsageError, match="no unit template"):
        lab.up("test-lab-unit", make_service(launch={"template": "none.j2"}))
    assert lab.status("test-lab-unit") is None
    assert not state.folder_of("test-lab-unit").exists()


# ---------------------------------------------------------------- two labs side by side


@pytest.fixture(scope="module")
def two_labs() -> Iterator[tuple[lab.Lab, lab.Lab]]:
    for name in NAMES:
        lab.down(name)
    mask = os.umask(0o077)  # an administrator's habit, which the lab's own files must not have
    try:
        first, second = (lab.up(name, make_service(), start=False) for name in NAMES)
        yield first, second
    finally:
        os.umask(mask)
        for name in NAMES:
            lab.down(name)


@pytest.mark.lab
def test_side_by_side(two_labs: tuple[lab.Lab, lab.Lab]) -> None:
    assert two_labs[0].address != two_labs[1].address
    keys = {Path(str(lab.connection(name).known_hosts)).read_text().split()[-2] for name in NAMES}
    machines = {inside(name, "cat /etc/machine-id") for name in NAMES}
    assert len(keys) == len(machines) == 2
    for name in NAMES:
        assert inside(name, "hostname") == name
        assert inside(name, "systemctl is-system-running") == "running"
    inside(NAMES[0], "touch /only-here")
    assert "only-here" not in inside(NAMES[1], "ls /")
    assert [one.name for one in lab.all_labs() if one.name in NAMES] == list(NAMES)


@pytest.mark.lab
def test_up_again_is_the_same_lab(two_labs: tuple[lab.Lab, lab.Lab]) -> None:
    assert lab.up(NAMES[0], make_service(), start=False) == two_labs[0]


@pytest.mark.lab
def test_users(two_labs: tuple[lab.Lab, lab.Lab]) -> None:
    name = two_labs[0].name
    assert inside(name, "sudo -n id -u", user="ops") == "0"
    assert inside(name, "sudo -n id -u || echo refused", user="nosudo") == "refused"


@pytest.mark.lab
def test_the_unit_is_there_and_not_started(two_labs: tuple[lab.Lab, lab.Lab]) -> None:
    name, unit = two_labs[0].name, make_service().unit
    shown = inside(name, f"systemctl show -p ActiveState,UnitFileState,DropInPaths {unit}")
    assert "ActiveState=inactive" in shown
    assert "UnitFileState=disabled" in shown
    assert f"{unit}.d/10-lab-cpu.conf" in shown
    assert f"--host {two_labs[0].address}" in inside(name, f"systemctl cat {unit}")
    inside(name, f"systemd-analyze --man=no verify /etc/systemd/system/{unit}")


@pytest.mark.lab
def test_systemd_reads_back_what_was_rendered(two_labs: tuple[lab.Lab, lab.Lab]) -> None:
    name = two_labs[0].name
    odd = ["a b", "", "100%", "$HOME ${HOME} $$", 'say "hi" it\'s', "C:\\x\\n", "two\nlines", ";"]
    values = {f"ODD_{i}": value for i, value in enumerate(odd)}
    service = make_service(
        unit="odd.service",
        python="/usr/bin/python3",
        model={"path": "/opt/with space/100%", "served_name": "n m"},
        launch={
            "args": odd,
            # There are no weights here for the check before a start to find.
            "environment": {**values, "PYTHONPATH": "/run/fake", "OPSCTL_PRESTART_SKIP": "all"},
        },
    )
    files = render_files(service, resources.bundled("unit-templates"))
    written = [
        f"mkdir -p {shlex.quote(str(Path(path).parent))} && "
        f"printf %s {shlex.quote(text)} > {shlex.quote(path)}"
        for path, text in files.items()
    ]
    fake = (
        "import json, os, sys; from pathlib import Path\n"
        "Path('/run/fake/out').write_text(json.dumps([sys.argv[1:], dict(os.environ)]))\n"
        "import time; time.sleep(60)\n"
    )
    script = "; ".join(
        [
            "set -e",
            "mkdir -p /run/fake/sglang '/opt/with space/100%'",
            f"printf %s {shlex.quote(fake)} > /run/fake/sglang/launch_server.py",
            "touch /run/fake/sglang/__init__.py",
            *written,
            "systemctl daemon-reload",
            "systemctl start odd",
            "for i in $(seq 50); do test -s /run/fake/out && break; sleep 0.1; done",
            "cat /run/fake/out",
            "systemctl stop odd",
        ]
    )
    arguments, environment = json.loads(inside(name, script))
    opening = ["--model-path", "/opt/with space/100%", "--served-model-name", "n m"]
    assert arguments == [*opening, "--host", "0.0.0.0", "--port", "30001", *odd]
    assert {key: environment[key] for key in values} == values


@pytest.mark.lab
def test_a_rebooted_lab_keeps_its_disk(two_labs: tuple[lab.Lab, lab.Lab]) -> None:
    name = two_labs[1].name
    booted = "systemctl show -p UserspaceTimestampMonotonic --value"
    before = inside(name, f"touch /var/lib/kept; {booted}")
    subprocess.run(lab.ssh_argv(name, "systemctl reboot"), check=False, capture_output=True)
    deadline = time.monotonic() + 30
    after = before
    while after in {"", before} and time.monotonic() < deadline:
        time.sleep(0.3)
        argv = lab.ssh_argv(name, f"ls /var/lib/kept >&2 && {booted}")
        after = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
    assert after not in {"", before}
    status = lab.status(name)
    assert status is not None
    assert status.running


@pytest.mark.lab
def test_an_address_is_had_once(two_labs: tuple[lab.Lab, lab.Lab]) -> None:
    with pytest.raises(Refused, match="taken by another lab"):
        lab.up("test-lab-third", make_service(), address=two_labs[0].address)
    assert lab.status("test-lab-third") is None


# ---------------------------------------------------------------- its end


@pytest.mark.lab
def test_down_leaves_nothing() -> None:
    name = "test-lab-down"
    up = lab.up(name, make_service(), start=False)
    assert traces(name)
    assert lab.down(name) is True
    assert traces(name) == []
    assert not up.state_dir.exists()
    assert lab.status(name) is None


@pytest.mark.lab
def test_a_killed_lab_is_seen_and_cleared() -> None:
    name = "test-lab-killed"
    lab.up(name, make_service(), start=False)
    try:
        record = state.load(name)
        assert record is not None
        os.kill(record.supervisor.pid, signal.SIGKILL)
        assert record.supervisor.wait(10)
        status = lab.status(name)
        assert status is not None
        assert not status.running
        with pytest.raises(Refused, match="no lab"):
            lab.connection(name)
        again = lab.reset(name, make_service(), start=False)
        assert again.running
        assert again.address == status.address
    finally:
        lab.down(name)
    assert traces(name) == []


@pytest.mark.lab
def test_reset_is_pristine() -> None:
    name = "test-lab-reset"
    first = lab.up(name, make_service(), start=False)
    try:
        inside(name, "touch /root/mark")
        key = Path(str(lab.connection(name).known_hosts)).read_text()
        second = lab.reset(name, make_service(), start=False)
        assert second.address == first.address
        assert Path(str(lab.connection(name).known_hosts)).read_text() != key
        assert inside(name, "ls /root") == ""
    finally:
        lab.down(name)


# ---------------------------------------------------------------- SGLang in it


SPECULATIVE = (
    "--speculative-algorithm=DFLASH",
    "--speculative-draft-model-path=/opt/models/dflash",
    "--enable-metrics",
    "--decode-log-interval=1",
)
# What the patch set's first patch comes to; sed, since this is about the lab and its models.
FIX = r"""
f=$(find /opt/sglang/lib -path '*/sglang/srt/models/dflash.py')
sed -i 's/getattr(config, "rope_theta", 1000000)/config.rope_parameters["rope_theta"]/' "$f"
grep -c 'rope_parameters' "$f"
"""


def wait_until_ready(name: str, unit: str, budget: float = 120.0) -> None:
    this_start = f"_SYSTEMD_INVOCATION_ID=$(systemctl show -p InvocationID --value {unit})"
    ready = f"journalctl -q -o cat {this_start} | grep -c 'ready to roll'"
    deadline = time.monotonic() + budget
    while inside(name, f"{ready} || true") == "0":
        assert time.monotonic() < deadline, inside(name, f"journalctl -u {unit} -n 20 -o cat")
        time.sleep(0.5)


def accept_length(one: lab.Lab) -> tuple[float, str]:
    """Tokens per verify step of the smoke prompt, and the text."""
    sampling = {"temperature": 0, "max_new_tokens": 128}
    body = {"text": "Write quicksort in Python with comments.", "sampling_params": sampling}
    answer = httpx.post(f"http://{one.address}:30001/generate", json=body, timeout=60).json()
    assert answer["meta_info"]["completion_tokens"] == 128
    return 128 / answer["meta_info"]["spec_verify_ct"], answer["text"]


@pytest.mark.lab
def test_sglang_drafts_in_vain_until_its_theta_is_right() -> None:
    name, service = "test-lab-sglang", make_service(launch={"args": SPECULATIVE})
    one = lab.up(name, service)
    try:
        wait_until_ready(name, service.unit)
        before, text = accept_length(one)
        assert inside(name, FIX) == "1"
        inside(name, f"systemctl restart {service.unit}")
        wait_until_ready(name, service.unit)
        after, same_text = accept_length(one)
        # A clean stop ends in SIGKILL, and is no failure.
        inside(name, f"systemctl stop {service.unit}")
        shown = inside(name, f"systemctl show -p ActiveState,Result,ExecMainStatus {service.unit}")
    finally:
        lab.down(name)
    assert before < 1.3
    assert after > 3
    assert "pivot = items[len(items) // 2]" in text
    assert text == same_text
    assert set(shown.split()) == {"ActiveState=inactive", "Result=success", "ExecMainStatus=9"}
    assert traces(name) == []
