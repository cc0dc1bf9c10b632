"""opsctl watch on a terminal, against a real host with the light service."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from fault_proxy import Proxy
from light_lab import PORT, LightLab, running
from light_package import HERE, UNIT
from pseudo_terminal import Terminal
from watch_samples import ARGS, CRASH, decode

from opsctl import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
ROOT = HERE.parents[1]

Watch = Callable[..., Terminal]


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LightLab]:
    with running(LightLab, "watch", tmp_path_factory) as found:
        load = {"num_reqs": 3, "num_waiting_reqs": 1, "num_tokens": 250, "num_pending_tokens": 0}
        found.inside(f"echo '{json.dumps(load)}' > /run/light-load")
        yield found


@pytest.fixture
def proxy(light: LightLab) -> Iterator[Proxy]:
    found = Proxy(light.address, lab.connection(light.name).port or 22)
    yield found
    found.close()


@pytest.fixture
def watch(light: LightLab, proxy: Proxy, tmp_path: Path) -> Iterator[Watch]:
    """Starts `opsctl watch` on a terminal; its host `light` is behind the proxy, and `gone` is
    not there."""
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text(_inventory(light, proxy, tmp_path), encoding="utf-8")
    light.await_serving(20)
    open_: list[Terminal] = []

    def start(*words: str, **options: object) -> Terminal:
        argv = [sys.executable, "-m", "opsctl.cli", "-i", str(inventory), "watch", *words]
        terminal = Terminal(argv, cwd=str(ROOT), **options)  # type: ignore[arg-type]
        open_.append(terminal)
        return terminal

    yield start
    for terminal in open_:
        terminal.close()


def _inventory(light: LightLab, proxy: Proxy, folder: Path) -> str:
    found = lab.connection(light.name)
    key = Path(str(found.known_hosts)).read_text(encoding="utf-8").split(maxsplit=1)[1]
    known = folder / "known_hosts"
    known.write_text(f"[127.0.0.1]:{proxy.port} {key}", encoding="utf-8")
    ssh = {
        "address": "127.0.0.1",
        "user": "root",
        "port": proxy.port,
        "identity_file": str(found.identity_file),
        "known_hosts": str(known),
    }
    services = {"light": {**light.service, "listen": light.address}}
    hosts = {
        "light": {"ssh": ssh, "services": services},
        "gone": {"ssh": {**ssh, "port": 9, "connect_timeout": 1}, "services": services},
    }
    content = {"version": 1, "defaults": {"host": "light"}, "hosts": hosts}
    return yaml.safe_dump(content)


def say(light: LightLab, *lines: str) -> None:
    """Have the service write these lines to its journal."""
    # Its own tag stands before each.
    bare = [line.partition("] ")[2] if line.startswith("[") else line for line in lines]
    request = urllib.request.Request(
        f"http://{light.address}:{PORT}/say",
        data=json.dumps(bare).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def test_it_follows_a_start_its_crash_and_the_next_start(light: LightLab, watch: Watch) -> None:
    terminal = watch()
    terminal.await_text("phase      ready", "2 running, 1 queued   kv 25%", "(endpoint)")
    say(light, ARGS, *[decode(5.0, running=7) for _ in range(5)])
    terminal.await_text("accept len 5.00", "7 running, 1 queued", "cuda graph 100%", "█")
    old = light.inside(f"systemctl show {UNIT} -p InvocationID --value")[:8]
    assert old in terminal.text
    say(light, *CRASH)
    terminal.await_text("!! FATAL illegal_memory_access", "crashed: illegal_memory_access")
    light.set_load(3.0)
    try:
        light.inside(f"kill -KILL $(systemctl show {UNIT} -p MainPID --value)")
        text = terminal.await_text("restart by systemd", "load       [", "┊", "(an earlier start)")
        assert "accept len no decode line of this start yet" in text
        assert "running, - queued" in text
        new = light.inside(f"systemctl show {UNIT} -p InvocationID --value")[:8]
        assert new in text
        assert f"start      invocation {old}" not in text
        terminal.await_text("phase      ready")
    finally:
        light.set_load(0.5)
    terminal.press("q")
    assert terminal.finish() == 0
    assert terminal.restored


def test_a_cut_connection_is_made_again_beside_a_host_that_is_not_there(
    light: LightLab, watch: Watch, proxy: Proxy
) -> None:
    terminal = watch("light", "gone")
    terminal.await_text(">1 light  ready", " 2 gone   UNREACHABLE")
    started = light.inside(f"systemctl show {UNIT} -p ActiveEnterTimestampMonotonic")
    proxy.reset()
    terminal.await_text("connection lost:")
    say(light, "written meanwhile")
    text = terminal.await_text("connected again to root@127.0.0.1", "written meanwhile")
    assert text.count("fired up and ready") <= 1, "nothing is read twice"
    assert started == light.inside(f"systemctl show {UNIT} -p ActiveEnterTimestampMonotonic")
    terminal.press("2")
    terminal.await_text("watch  gone  UNREACHABLE", "host       cannot reach")
    terminal.press("\t")
    terminal.await_text("watch  light  live")
    terminal.process.send_signal(2)
    assert terminal.finish() == 130
    assert terminal.restored
    assert b"Traceback" not in terminal.raw


def test_a_half_open_connection_shows_how_old_the_data_is(
    light: LightLab, watch: Watch, proxy: Proxy
) -> None:
    terminal = watch()
    terminal.await_text("live", "phase      ready")
    proxy.freeze("up", "down")
    terminal.await_text("last heard 8s ago")
    terminal.press("q")
    assert terminal.finish() == 0


def test_bytes_a_second_are_bounded(light: LightLab, watch: Watch) -> None:
    """On a slow line, under lines that change every plot and fill the journal: 710 bytes a second
    were measured where the bound is out of reach."""
    rate, seconds = 300.0, 10.0
    terminal = watch("--max-bytes", f"{rate:.0f}")
    terminal.await_text("phase      ready")
    terminal.press("-")  # a minute in the plots: a column a second
    time.sleep(3)
    began = time.monotonic()
    place = 0
    while time.monotonic() - began < seconds:
        busy = [decode(1.0 + (place + n) % 8, 50.0 + 37 * (place % 11)) for n in range(3)]
        say(light, *busy, *(f"a line of the journal, number {place} {n}" for n in range(3)))
        place += 1
        time.sleep(0.3)
    sent = terminal.bytes_between(began, began + seconds)
    one_frame = 2000
    assert sent <= rate * seconds + one_frame, f"{sent / seconds:.0f} bytes a second"
    assert sent > 300, "and it was not standing still"
    terminal.press("q")
    assert terminal.finish() == 0


def test_resized_in_mid_flight(light: LightLab, watch: Watch) -> None:
    terminal = watch()
    terminal.await_text("phase      ready", "q quit")
    for columns, lines in ((132, 50), (40, 12), (80, 24)):
        terminal.resize(columns, lines)

        def fits(text: str, lines: int = lines) -> bool:
            shown = text.split("\n")
            return shown[0].startswith(" opsctl watch") and shown[lines - 1].startswith("q quit")

        terminal.await_true(fits)
    terminal.press("q")
    assert terminal.finish() == 0


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "vt100", "LC_ALL": "C"}])
def test_without_colour(light: LightLab, watch: Watch, env: dict[str, str]) -> None:
    terminal = watch(env=env)
    terminal.await_text("phase      ready", "accept len")
    say(light, *CRASH)
    text = terminal.await_text("!! FATAL illegal_memory_access", "crashed:")
    cells = [cell for row in terminal.cells() for cell in row]
    assert {cell.fg for cell in cells} | {cell.bg for cell in cells} == {"default"}
    assert text.isascii() == ("LC_ALL" in env)
    terminal.press("q")
    assert terminal.finish() == 0
    light.inside(f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}")


def test_a_dumb_terminal_gets_a_line_a_change(light: LightLab, watch: Watch) -> None:
    terminal = watch(env={"TERM": "dumb"}, columns=200)
    terminal.await_text("light: ready, 2 running 1 queued")
    say(light, *CRASH)
    terminal.await_text("!! FATAL illegal_memory_access: RuntimeError")
    light.inside(f"systemctl reset-failed {UNIT}; systemctl restart {UNIT}")
    terminal.await_text("light: -- restart: invocation")
    assert b"\x1b" not in terminal.raw
    terminal.press("\x03")
    assert terminal.finish() == 130


def test_keys(light: LightLab, watch: Watch) -> None:
    terminal = watch()
    terminal.await_text("phase      ready")
    terminal.press("?")
    terminal.await_text("leave; nothing on the host has been changed")
    terminal.press("?")
    terminal.press("p")
    terminal.await_text("PAUSED")
    say(light, "said while paused")
    time.sleep(3)
    assert "said while paused" not in terminal.text
    terminal.press("p")
    terminal.await_text("said while paused")
    terminal.press("+")
    terminal.await_text("15m00s ago")
    say(light, decode())
    terminal.press("a")
    terminal.await_text("journal, every line", "Decode batch")
    say(light, "quite another line")
    terminal.await_text("quite another line")
    terminal.press("/pausedq")
    terminal.await_text("/pausedq_  enter")
    terminal.press("\x7f\r")
    text = terminal.await_true(lambda text: "quite another line" not in text)
    assert "said while paused" in text
    assert "/paused  esc: all rows" in text
    terminal.press("\x1b")
    terminal.await_text("quite another line", "q quit")
    cells = [cell for row in terminal.cells() for cell in row]
    assert {cell.fg for cell in cells} > {"default"}, "there is colour"
    assert {cell.bg for cell in cells} == {"default"}, "on the terminal's own background"
    terminal.press("q")
    assert terminal.finish() == 0
