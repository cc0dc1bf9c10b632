"""What the guard on the host tells, and how it gets there: with the standard library alone."""

from __future__ import annotations

import http.server
import json
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from guard_tools import Host
from hostside_tools import Environment

from opsctl.hostside import guard, guardian, notice
from opsctl.hostside.state import State, lock_holder
from opsctl.transport import local
from opsctl.transport.bundle import guard_program

pytest_plugins = ["guard_fixtures", "hostside_fixtures"]

SECRET = "x7s3cr3t"


class Hook:
    """A receiver that answers with `statuses` one by one, then with 204; None hangs."""

    def __init__(self) -> None:
        self.statuses: list[int | None] = []
        self.bodies: list[dict[str, Any]] = []
        self.location = ""
        self.over = threading.Event()
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                hook.bodies.append(json.loads(content))
                status = hook.statuses.pop(0) if hook.statuses else 204
                if status is None:
                    hook.over.wait(30)
                    return
                self.send_response(status)
                if hook.location:
                    self.send_header("Location", hook.location)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/{SECRET}?team=ops"

    def terms(self, **changes: Any) -> dict[str, Any]:
        one = {"url": self.url, "form": "json", "label": "webhook 1 (json)"}
        return {"host": "alpha", "next": "opsctl status alpha", "hooks": [one | changes]}


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    yield found
    found.over.set()
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice, "BOUND", 1.5)
    monkeypatch.setattr(notice, "_SILENCE", 0.4)
    monkeypatch.setattr(notice, "_PAUSE", 0.1)


def error_of(url: str) -> str:
    (outcome,) = notice.tell([{"url": url, "form": "json", "label": "x"}], {"event": "guard"})
    assert SECRET not in outcome["error"]
    assert "127.0.0.1" not in outcome["error"]
    return outcome["error"]


# -- the post ------------------------------------------------------------------------------------


def test_it_is_accepted(hook: Hook) -> None:
    assert error_of(hook.url) == ""
    assert [body["event"] for body in hook.bodies] == ["guard"]


@pytest.mark.parametrize(
    ("statuses", "error", "tries"),
    [
        ([500, 429], "", 3),
        ([404], "HTTP 404", 1),
        ([503] * 50, "HTTP 503", None),
        ([302], "HTTP 302", 1),
    ],
)
def test_an_answer(
    hook: Hook, quick: None, statuses: list[int | None], error: str, tries: int | None
) -> None:
    hook.statuses = statuses
    hook.location = hook.url  # a redirect is not followed, wherever it leads
    assert error_of(hook.url) == error
    assert tries in (None, len(hook.bodies))
    assert len(hook.bodies) < 20


def test_a_receiver_that_hangs_is_given_up(hook: Hook, quick: None) -> None:
    hook.statuses = [None] * 9
    began = time.monotonic()
    assert error_of(hook.url) == "no answer"
    assert time.monotonic() - began < 3.0
    assert len(hook.bodies) == 1, "it may have arrived"


def test_all_of_them_are_told_at_once_within_one_bound(hook: Hook, quick: None) -> None:
    hook.statuses = [None] * 4
    other = Hook()
    hooks = [{"url": hook.url, "form": "slack", "label": str(n)} for n in range(4)]
    hooks.append({"url": other.url, "form": "slack", "label": "other"})
    began = time.monotonic()
    outcomes = notice.tell(hooks, {"event": "guard"})
    assert time.monotonic() - began < 3.0
    assert [bool(each["error"]) for each in outcomes] == [True] * 4 + [False]
    assert "blocks" in other.bodies[0]
    other.over.set()
    other.server.shutdown()
    other.server.server_close()


def test_nobody_is_there(quick: None) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        assert error_of(f"http://127.0.0.1:{free.getsockname()[1]}/{SECRET}") == "no connection"


@pytest.mark.parametrize("hook_", [{}, {"url": 5, "form": "json"}, {"url": "x:y", "form": "json"}])
def test_a_damaged_hook_is_an_error_and_no_more(hook_: dict[str, Any], quick: None) -> None:
    (outcome,) = notice.tell([hook_], {"event": "guard"})
    assert outcome["error"]


# -- kept on the host ----------------------------------------------------------------------------


def test_what_is_kept_is_root_s_own(env: Environment) -> None:
    terms = {"host": "alpha", "next": "", "hooks": [{"url": f"https://x/{SECRET}"}]}
    env.state.prepare()
    notice.store(env.state, terms)
    path = Path(env.state.path(notice.FILE))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert notice.stored(env.state) == terms
    notice.store(env.state, None)
    assert not path.exists()
    assert notice.stored(env.state) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"hooks": 5}', "\xff", '{"hooks": [5, "x"]}'])
def test_a_damaged_file_tells_nobody(env: Environment, text: str) -> None:
    env.state.prepare()
    Path(env.state.path(notice.FILE)).write_bytes(text.encode("latin-1"))
    assert not notice.stored(env.state).get("hooks")


def test_a_disk_that_is_full_arms_the_guard_all_the_same(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(notice, "write_atomically", full)
    notice.store(env.state, {"hooks": [{}]})
    assert notice.stored(env.state) == {}


def test_the_terms_that_are_shown_hold_no_url(host: Host, hook: Hook) -> None:
    with local() as remote:
        remote.call("lock", site=host.site, who="ann@laptop", why="", token="t")
        given: dict[str, Any] = {"to": 0, "target": 1, "serving": True, "token": "t"}
        given |= {"budget": 5.0, "within": 60.0}
        remote.call(
            "arm_guard",
            site=host.site,
            given=given,
            program=guard_program(),
            notices=hook.terms(),
        )
        kept = Path(host.env.state.path(notice.FILE))
        assert SECRET in kept.read_text()
        shown = [remote.call("lock_state", site=host.site), remote.call("inspect", site=host.site)]
        shown += remote.call("audit_log", site=host.site)
        assert "within" in repr(shown)
        assert SECRET not in repr(shown)
        others = [path for path in Path(host.env.state.root).rglob("*") if path.is_file()]
        assert kept in others
        for path in others:
            assert path == kept or SECRET.encode() not in path.read_bytes(), path
        remote.call("disarm_guard", site=host.site)
        assert not kept.exists()


# -- the guard -----------------------------------------------------------------------------------


def armed(host: Host, hook: Hook, **terms: Any) -> None:
    host.arm(why="because", **terms)
    notice.store(host.env.state, hook.terms())


def test_a_guard_that_acted_tells(host: Host, hook: Hook) -> None:
    armed(host, hook)
    assert host.guard() == 0
    assert host.restored()
    (told,) = hook.bodies
    assert (told["event"], told["host"], told["service"]) == ("guard", "alpha", "serve")
    assert (told["who"], told["why"], told["command"]) == ("ann@laptop", "because", "deploy")
    assert (told["from"]["generation"], told["to"]["generation"]) == (host.new, host.new)
    assert told["generation"] == 0
    assert told["cause"] == (
        "its client was lost; generation 0 was made sure of, and the service answers"
    )
    assert (told["remedy"], told["next"]) == ("the host needs nothing", "opsctl status alpha")
    assert told["duration_s"] == host.report["seconds"]
    assert host.report["notices"] == [{"label": "webhook 1 (json)", "error": ""}]
    assert notice.stored(host.env.state) == {}


def test_a_service_that_did_not_come_up_is_to_be_looked_at(host: Host, hook: Hook) -> None:
    armed(host, hook, budget=0.2, site=host.site | {"port": 1})
    host.guard()
    (told,) = hook.bodies
    assert "did NOT come up again" in told["cause"]
    assert told["remedy"] == "look at the host now"


@pytest.mark.parametrize("statuses", [[404], [None] * 9])
def test_a_notice_that_fails_stands_in_the_report_and_changes_nothing(
    host: Host, hook: Hook, quick: None, statuses: list[int | None]
) -> None:
    hook.statuses = statuses
    armed(host, hook)
    assert host.guard() == 0
    assert host.restored()
    assert host.report["healthy"] is True
    (outcome,) = host.report["notices"]
    assert outcome["error"]
    assert any("no notice to webhook 1 (json)" in line for line in host.said)
    assert guard.terms(host.env.state) is None
    assert lock_holder(host.env.state) is None
    assert SECRET not in "".join(host.said) + json.dumps(host.report)


def test_a_guard_that_cannot_restore_says_so_and_goes_on(
    host: Host, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, when it has failed some times; and again when it is done at last."""
    turns: list[int] = []
    restore = guardian.Guardian._restore_files

    def full(self: guardian.Guardian, terms: dict[str, Any]) -> None:
        turns.append(1)
        if len(turns) < 6:
            raise OSError(28, "No space left on device")
        restore(self, terms)

    monkeypatch.setattr(guardian.Guardian, "_restore_files", full)
    armed(host, hook)
    assert host.guard() == 0
    assert host.restored()
    stuck, done = hook.bodies
    assert "is not done yet: [Errno 28] No space left on device" in stuck["cause"]
    assert stuck["remedy"] == "look at the host now"
    assert done["remedy"] == "the host needs nothing"


def _disarmed(state: State) -> None:
    Path(state.path(guard.TERMS)).unlink()


def _confirmed(state: State) -> None:
    current = state.current()
    assert current is not None
    state.save(dict(current, status="confirmed"))


@pytest.mark.parametrize("conclude", [_disarmed, _confirmed])
def test_a_guard_with_nothing_to_do_tells_nobody(
    host: Host, hook: Hook, conclude: Callable[[State], None]
) -> None:
    """Its client ended well, or died after its last word."""
    armed(host, hook)
    conclude(host.env.state)
    assert host.guard() == 0
    assert not host.restored()
    assert hook.bodies == []
    assert guard.report(host.env.state) is None


def test_the_report_is_written_while_the_lock_is_held(
    host: Host, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that takes over must not find it coming back after it cleared it."""
    held: list[bool] = []
    write = guard.write_report

    def watched(state: State, content: dict[str, Any]) -> None:
        held.append(lock_holder(state) is not None)
        write(state, content)

    monkeypatch.setattr(guard, "write_report", watched)
    armed(host, hook)
    host.guard()
    assert held == [True, True]
