"""The check before a start: run as systemd runs it, with a stand-in for nvidia-smi on PATH."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsctl.journal import diagnose, entry_from_text
from opsctl.units import prestart

FILE = Path(prestart.__file__)
HEADER = (2).to_bytes(8, "little") + b"{}"


def folder_of_model(where: Path, shards: int = 3) -> Path:
    """A model of so many shards with its index, as the hub has it."""
    where.mkdir()
    names = [f"model-{n + 1:05d}-of-{shards:05d}.safetensors" for n in range(shards)]
    for name in names:
        (where / name).write_bytes(HEADER)
    index = {"weight_map": {f"layer.{n}.weight": name for n, name in enumerate(names)}}
    (where / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (where / "config.json").write_text("{}", encoding="utf-8")
    return where


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Rig:
    """A folder that is the whole PATH, and the check run in it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in ("sh", "cat", "sleep", "grep"):
            found = shutil.which(name)
            assert found
            (self.bin / name).symlink_to(found)
        self.port = port
        self.said = ""
        self.environment: dict[str, str] = {}

    def smi(self, text: str) -> None:
        program = self.bin / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        program.chmod(0o755)

    def run(self, *arguments: str, patience: str = "1.5") -> int:
        code = (
            f"import runpy, sys; sys.path.insert(0, {str(FILE.parent)!r}); import prestart; "
            f"prestart.GPU_PATIENCE = {patience}; prestart.PORT_PATIENCE = 0.5; "
            "prestart.SMI_BOUND = 1.0; sys.exit(prestart.main(sys.argv[1:]))"
        )
        argv = [sys.executable, "-I", "-S", "-c", code, "--port", str(self.port), *arguments]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={"PATH": str(self.bin), **self.environment},
        )
        self.said = done.stderr
        return done.returncode

    @property
    def refusals(self) -> list[str]:
        return [line for line in self.said.splitlines() if line.startswith("<3>")]

    @property
    def kind(self) -> str:
        """What the diagnosis calls these lines."""
        lines = (line[3:] for line in self.said.splitlines())
        return diagnose(entry_from_text(line) for line in lines).kind


@pytest.fixture
def rig(tmp_path: Path, port: int) -> Rig:
    return Rig(tmp_path, port)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return folder_of_model(tmp_path / "model")


def test_nothing_in_the_way(rig: Rig, model: Path) -> None:
    assert rig.run("--model-path", str(model)) == 0
    assert "no nvidia-smi: GPU memory was not looked at" in rig.said
    assert "3 shards" in rig.said
    assert f"port {rig.port} free" in rig.said
    found = diagnose(entry_from_text(line[3:]) for line in rig.said.splitlines())
    assert not found.incident


def test_the_file_runs_by_itself(port: int, model: Path) -> None:
    argv = [sys.executable, "-I", "-S", str(FILE), f"--port={port}", f"--model-path={model}"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"PATH": ""})
    assert done.returncode == 0, done.stderr
    assert "<6>opsctl-prestart: nothing in the way" in done.stderr


# -- weights -----------------------------------------------------------------------------------


def test_no_such_folder(rig: Rig, tmp_path: Path) -> None:
    assert rig.run("--model-path", str(tmp_path / "gone")) == 1
    assert str(tmp_path / "gone") in rig.refusals[0]
    assert rig.kind == "model_path_missing"


def test_an_empty_mount_point(rig: Rig, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert rig.run("--model-path", str(tmp_path / "empty")) == 1
    assert rig.kind == "model_path_missing"


def test_a_shard_is_missing(rig: Rig, model: Path) -> None:
    (model / "model-00002-of-00003.safetensors").unlink()
    assert rig.run("--model-path", str(model)) == 1
    assert "1 of 3 shards not found: model-00002-of-00003.safetensors" in rig.refusals[0]
    assert rig.kind == "model_path_missing"


@pytest.mark.parametrize(
    "content", [b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", b"", b"\x00" * 7]
)
def test_a_shard_that_is_none(rig: Rig, model: Path, content: bytes) -> None:
    (model / "model-00002-of-00003.safetensors").write_bytes(content)
    assert rig.run("--model-path", str(model)) == 1
    assert rig.kind == "weights_corrupt"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"weight_map": 3}', '{"metadata": {}}'])
def test_an_index_that_is_none(rig: Rig, model: Path, text: str) -> None:
    (model / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    assert rig.run("--model-path", str(model)) == 1
    assert rig.kind == "weights_corrupt"


def test_the_drafter_too(rig: Rig, model: Path, tmp_path: Path) -> None:
    gone = f"--speculative-draft-model-path={tmp_path / 'draft'}"
    assert rig.run("--model-path", str(model), gone) == 1
    assert rig.refusals[0].startswith("<3>opsctl-prestart: not started: drafter path")
    assert rig.kind == "model_path_missing"


def test_what_it_cannot_judge_it_lets_pass(rig: Rig, model: Path, tmp_path: Path) -> None:
    (model / "model-00002-of-00003.safetensors").unlink()
    assert rig.run("--model-path", str(model), "--load-format", "dummy") == 0
    single = tmp_path / "model.gguf"
    single.write_bytes(b"GGUF")
    assert rig.run("--model-path", str(single)) == 0
    assert rig.run("--model-path", "Qwen/Qwen3-8B") == 0
    assert "Qwen/Qwen3-8B is no path" in rig.said
    # The last one counts, as it does for the server.
    assert rig.run("--model-path", "/gone", "--model-path", str(single)) == 0


# -- the port ----------------------------------------------------------------------------------


def test_the_port_is_held(rig: Rig) -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", rig.port))
        assert rig.run() == 0, "what does not listen is not in uvicorn's way either"
        holder.listen()
        assert rig.run() == 1
    assert f"port {rig.port} is already in use" in rig.refusals[0]
    assert f"pid {os.getpid()} (" in rig.refusals[0]
    assert rig.kind == "port_in_use"


def test_a_port_that_becomes_free_is_waited_for(rig: Rig) -> None:
    code = (
        "import socket, sys, time; s = socket.socket(); s.bind(('127.0.0.1', int(sys.argv[1])));"
        "s.listen(); print('up', flush=True); time.sleep(0.3)"
    )
    argv = [sys.executable, "-I", "-c", code, str(rig.port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert rig.run() == 0, rig.said


def test_an_address_of_another_machine(rig: Rig) -> None:
    assert rig.run("--host", "192.0.2.1") == 1
    assert "192.0.2.1, where the server is to listen, is no address" in rig.refusals[0]


def test_an_address_that_says_nothing(rig: Rig) -> None:
    assert rig.run("--host", "no.such.name.invalid") == 0
    assert "was not tried" in rig.said


# -- GPUs --------------------------------------------------------------------------------------

_RANK = "import sys, time; open('/proc/self/comm', 'w').write('sglang::sched'); time.sleep(60)"


@pytest.fixture
def orphan() -> Iterator[int]:
    """A process that is named as a rank, whose parent is dead."""
    starter = (
        "import subprocess, sys; "
        f"print(subprocess.Popen([sys.executable, '-I', '-c', {_RANK!r}], "
        "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
    )
    argv = [sys.executable, "-I", "-c", starter]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") != "sglang::sched\n":
        assert time.monotonic() < until
        time.sleep(0.05)
    yield pid
    os.kill(pid, 9)


def listing(pid: int, gpu: str = "GPU-0000") -> str:
    return (
        'case "$1" in\n'
        f"  *compute-apps*) echo '{pid}, {gpu}, 131072';;\n"
        "  *) printf '0, GPU-0000\\n1, GPU-1111\\n';;\nesac"
    )


def is_reparented(pid: int) -> bool:
    return prestart._is_orphan(pid)


def test_an_orphan_holds_memory(rig: Rig, orphan: int) -> None:
    if not is_reparented(orphan):
        pytest.skip("orphans go to another reaper than init here")
    rig.smi(listing(orphan))
    assert rig.run() == 1
    (line,) = rig.refusals
    assert f"pid {orphan} (sglang::sched, its server is dead) holds 131072 MiB" in line
    assert "waiting up to" in rig.said
    assert rig.kind == "orphan_processes"


def test_an_orphan_on_another_gpu_is_no_hindrance(rig: Rig, orphan: int) -> None:
    rig.smi(listing(orphan, "GPU-1111"))
    assert rig.run() == 0, rig.said
    rig.environment["CUDA_VISIBLE_DEVICES"] = "GPU-0"
    assert rig.run() == 0, rig.said
    if is_reparented(orphan):
        rig.environment["CUDA_VISIBLE_DEVICES"] = "1"
        assert rig.run() == 1
        del rig.environment["CUDA_VISIBLE_DEVICES"]
        assert rig.run("--tp-size=2") == 1
        assert rig.run("--base-gpu-id", "1") == 1


def test_memory_that_the_driver_gives_back_is_waited_for(rig: Rig, orphan: int) -> None:
    (rig.bin / "state").write_text("", encoding="utf-8")
    rig.smi(
        f"if grep -q once {rig.bin}/state; then exit 0; fi\n{listing(orphan)}\n"
        f'case "$1" in *query-gpu*) echo once > {rig.bin}/state;; esac'
    )
    assert rig.run(patience="20") == 0, rig.said
    if is_reparented(orphan):
        assert "waiting up to 20 s" in rig.said


def test_others_are_left_alone(rig: Rig) -> None:
    rig.smi(listing(os.getpid()))
    assert rig.run() == 0, rig.said
    assert f"others use GPU memory, and are left alone: pid {os.getpid()} (" in rig.said
    assert not diagnose(entry_from_text(line[3:]) for line in rig.said.splitlines()).incident


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exec sleep 30", "nvidia-smi gave no answer within 1 s"),
        ("echo 'could not'; exit 9", "nvidia-smi ended with status 9"),
        ("echo '[Not Supported], x, y'; echo 'garbage'", "no GPU memory held"),
        ("echo '1, MIG-1, [N/A]'", "left alone: pid 1 ("),
    ],
)
def test_an_nvidia_smi_that_does_not_say(rig: Rig, text: str, said: str) -> None:
    rig.smi(text)
    began = time.monotonic()
    assert rig.run() == 0
    assert said in rig.said
    assert time.monotonic() - began < 15


def test_one_that_cannot_be_executed(rig: Rig) -> None:
    rig.smi("")
    (rig.bin / "nvidia-smi").write_bytes(b"\x7fELF not one")
    assert rig.run() == 0
    assert "GPU memory was not looked at" in rig.said


def test_dead_is_only_who_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-I", "-c", "pass"]) as process:
        process.wait()
    monkeypatch.setattr(os, "readlink", lambda path: "pid:[4026532000]")
    assert not prestart._is_gone(process.pid), "a container sees the host's numbers"
    monkeypatch.setattr(os, "readlink", lambda path: "pid:[4026531836]")
    assert prestart._is_gone(process.pid)
    assert not prestart._is_gone(os.getpid())


# -- the rest ----------------------------------------------------------------------------------


def test_shared_memory(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def room(free: int) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, 1 << 20, free >> 12, free >> 12, 0, 0, 0, 0, 255))

    def found(free: int, *arguments: str) -> prestart.Check:
        monkeypatch.setattr(os, "statvfs", lambda path: room(free))
        check = prestart.Check(arguments)
        check.shm()
        return check

    assert found(64 << 20).well, "what a container of Docker's has is enough for one rank"
    assert found(64 << 20, "--tp-size", "8").notes
    (text,) = found(12 << 20).refused
    assert "12 of 4096 MiB free" in text
    line = f"opsctl-prestart: not started: {text}"
    assert diagnose([entry_from_text(line)]).kind == "shm_exhausted"


def test_parts_are_left_out(rig: Rig) -> None:
    assert rig.run("--model-path", "/gone") == 1
    rig.environment["OPSCTL_PRESTART_SKIP"] = "weights,gpu"
    assert rig.run("--model-path", "/gone") == 0
    assert "weights: skipped by OPSCTL_PRESTART_SKIP" in rig.said
    rig.environment["OPSCTL_PRESTART_SKIP"] = "all"
    assert rig.run("--model-path", "/gone", "--host", "192.0.2.1") == 0


def test_a_fault_of_its_own_keeps_nothing_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(os, "statvfs", broken)
    check = prestart.look(["--port", "0"], skipped=["gpu"])
    assert not check.refused
    assert "shm was not looked at: RuntimeError: odd" in check.notes


@pytest.mark.parametrize(
    ("arguments", "ranks"),
    [
        ([], 1),
        (["--tp-size=8"], 8),
        (["--tp", "2", "--pp-size", "2"], 4),
        (["--tp", "4", "--dp-size", "2"], 8),
        (["--tp", "8", "--dp-size", "8", "--enable-dp-attention"], 8),
        (["--tp", "16", "--nnodes", "2"], 8),
        (["--tp", "x"], 1),
        (["--tp"], 1),
    ],
)
def test_ranks(arguments: list[str], ranks: int) -> None:
    assert prestart.Check(arguments).ranks() == ranks


def test_how_long_a_thousand_experts_take(tmp_path: Path, port: int) -> None:
    """An index of the size of Kimi K2's, 100,000 weights in 64 shards, is read in no time."""
    where = folder_of_model(tmp_path / "large", shards=64)
    names = [f"model-{n % 64 + 1:05d}-of-00064.safetensors" for n in range(100_000)]
    weights = {
        f"language_model.model.layers.{n % 61}.mlp.experts.{n}.down_proj.weight_packed": name
        for n, name in enumerate(names)
    }
    index = where / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}), encoding="utf-8")
    began = time.process_time()
    check = prestart.Check(["--model-path", str(where)])
    check.weights()
    assert not check.refused
    assert time.process_time() - began < 0.5
