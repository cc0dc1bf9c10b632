"""Who is told of a rollout and when, with scripted steps; `tests/notices` has real receivers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE
from test_rollout_engine import BOOM, Script

from opsctl.errors import LockHeld, Refused, Unreachable, UsageError
from opsctl.events import ignore
from opsctl.inventory import Webhook
from opsctl.notices import Courier
from opsctl.notices.sender import NotDelivered
from opsctl.report import Report
from opsctl.rollout import guard_text, notifying
from opsctl.rollout.session import Session

SECRET = "x7s3cr3t"


PLAN = SimpleNamespace(
    installed={"name": "ddtree", "version": "1.0.0"},
    patchset=SimpleNamespace(label="ddtree 1.1.0"),
    target={"files": {}},
    to_json=dict,
)


class Post:
    """In the sender's place: notes what is posted once `free` is set."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.free = threading.Event()
        self.free.set()

    def __call__(self, url: str, content: bytes) -> None:
        self.free.wait()
        if self.error is not None:
            raise self.error
        self.bodies.append(json.loads(content))

    @property
    def events(self) -> list[str]:
        return [body["event"] for body in self.bodies]


@pytest.fixture
def post(monkeypatch: pytest.MonkeyPatch) -> Post:
    found = Post()
    monkeypatch.setattr(notifying, "Courier", partial(Courier, post=found))
    return found


def hooked(**webhook: Any) -> Any:
    hook = Webhook.model_validate({"url": f"https://hooks.example/{SECRET}", **webhook})
    service = SERVICE.model_copy(update={"notices": (hook,)})
    service._name = "serve"
    return service


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, post: Post) -> Script:
    found = Script(monkeypatch)
    service = hooked()
    session = cast(Any, found.session)
    session.service = service
    session.host = SimpleNamespace(name="alpha", services={"serve": service})
    found.run.plan = cast(Any, PLAN)
    return found


def warnings(script: Script) -> list[str]:
    events = script.session.events
    return [e.message for e in events if (e.step, e.state) == ("notices", "warn")]


def test_a_rollout_that_ends_well(script: Script, post: Post) -> None:
    script.run.options = type(script.run.options)(why="because")
    report = script.execute()
    assert post.events == ["start", "success"]
    start, success = post.bodies
    assert (start["command"], start["host"], start["service"]) == ("deploy", "alpha", "serve")
    assert start["from"] == {"generation": 3, "set": "ddtree 1.0.0"}
    assert start["to"] == {"generation": 4, "set": "ddtree 1.1.0"}
    assert start["why"] == "because"
    assert (success["generation"], success["exit_code"], success["verdict"]) == (4, 0, "pass")
    assert (success["summary"], success["cause"]) == (report.summary, "")
    assert start["next"] == "opsctl wait alpha"


def test_the_start_is_told_when_the_service_is_about_to_stop(
    script: Script, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[list[str]] = []
    stop = script._step("stop")

    def watched(run: Any) -> str:
        before.append([event.step for event in script.session.events])
        return stop(run)

    from opsctl.rollout import registry

    monkeypatch.setitem(registry.ACTS, "stop", watched)
    script.execute()
    assert before == [["preflight"] * 2 + ["lock"] * 2 + ["stage"] * 2 + ["guard"] * 2 + ["stop"]]
    assert post.bodies[0]["at"] <= time.time()


def test_a_step_by_another_name_is_known_by_what_it_did(
    script: Script, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A playbook may call its steps as it likes."""
    monkeypatch.setattr(notifying, "_CHANGES", frozenset())
    script.execute()
    assert post.events == ["start", "success"]


@pytest.mark.parametrize(
    ("prepare", "event", "exit_code"),
    [
        (lambda script: script.fail("smoke", BOOM), "rollback", 10),
        (lambda script: script.fail("wait", KeyboardInterrupt()), "interrupted", 130),
        (lambda script: script.verdicts.insert(0, "inconclusive"), "inconclusive", 12),
    ],
)
def test_how_it_ended(
    script: Script, post: Post, prepare: Callable[[Script], None], event: str, exit_code: int
) -> None:
    prepare(script)
    report = script.execute()
    assert post.events == ["start", event]
    end = post.bodies[1]
    assert (end["exit_code"], report.exit_code) == (exit_code, exit_code)
    assert (end["code"], end["remedy"]) == (report.reasons[0].code, report.reasons[0].remedy)
    assert end["cause"]
    assert end["generation"] == report.generation


@pytest.mark.parametrize("on_failure", ["report", "restore"])
def test_a_failure_that_is_not_restored(script: Script, post: Post, on_failure: str) -> None:
    script.fail("smoke", BOOM)
    script.fail("stop", BOOM, at=2)  # on the way back
    report = script.execute(on_failure)
    assert report.exit_code == 11
    assert post.events == ["start", "failure"]
    assert post.bodies[1]["cause"] == report.summary


@pytest.mark.parametrize("name", ["preflight", "lock", "stage", "guard"])
@pytest.mark.parametrize("error", [Refused("no"), LockHeld("no"), KeyboardInterrupt(), KeyError()])
def test_what_changes_nothing_is_nobody_s_business(
    script: Script, post: Post, name: str, error: BaseException
) -> None:
    script.fail(name, error)
    with pytest.raises(type(error)):
        script.execute()
    assert post.bodies == []


@pytest.mark.parametrize(
    ("error", "event", "exit_code", "cause"),
    [
        (Unreachable("no route", remedy="look"), "failure", 5, "no route; nothing was changed"),
        (KeyboardInterrupt(), "interrupted", 130, "interrupted; nothing was changed"),
        (KeyError(SECRET), "failure", 1, "a bug in opsctl: KeyError; nothing was changed"),
    ],
)
def test_a_start_that_was_told_has_an_end(
    script: Script,
    post: Post,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    event: str,
    exit_code: int,
    cause: str,
) -> None:
    """The stop was announced, and failed before it touched anything."""
    from opsctl.rollout import registry

    def stop(run: Any) -> str:
        raise error

    monkeypatch.setitem(registry.ACTS, "stop", stop)
    with pytest.raises(type(error)):
        script.execute()
    assert post.events == ["start", event]
    assert (post.bodies[1]["exit_code"], post.bodies[1]["cause"]) == (exit_code, cause)
    assert post.bodies[1]["generation"] == 3
    assert script.session.events[-1].step != "notices"


def test_a_webhook_that_fails_is_one_warning(script: Script, post: Post) -> None:
    post.error = NotDelivered("HTTP 404")
    report = script.execute()
    assert (report.verdict, report.exit_code) == ("pass", 0)
    assert warnings(script) == ["webhook 1 (json): not told of start, success: HTTP 404"]
    assert SECRET not in repr(script.session.events)


def test_a_hanging_webhook_delays_no_step(
    script: Script, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step is done while the first notice is still on its way; the end waits, bounded."""
    monkeypatch.setattr(notifying, "_AT_THE_END", 0.5)
    post.free.clear()
    began = time.monotonic()
    report = script.execute()
    assert report.exit_code == 0
    assert time.monotonic() - began < 5
    assert script.done[-1] == "confirm"
    (text,) = warnings(script)
    assert "not told of start, success: not known to have arrived" in text
    post.free.set()


def test_without_notices_nothing_is_made(
    script: Script, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    cast(Any, script.session).service = SERVICE
    monkeypatch.setattr(notifying, "_Teller", None)
    assert script.execute().exit_code == 0
    assert post.bodies == []


def test_the_terminal_s_reader_is_back_afterwards(script: Script) -> None:
    emit = script.session.emit
    script.execute()
    assert script.session.emit == emit


def test_a_host_with_several_services_names_the_one(script: Script, post: Post) -> None:
    host = cast(Any, script.session).host
    host.services["other"] = host.services["serve"]
    script.execute()
    assert post.bodies[0]["next"] == "opsctl wait alpha --service serve"


def test_a_rollback_says_what_it_returns_to(
    script: Script, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = {"number": 2, "set": {"name": "ddtree", "version": "0.9.0"}}
    call = script.session.call
    script.roll_back()
    script.run.plan = None
    script.run.facts = {"generation": {"number": 3, "set": None}}

    def answer(op: str, **params: Any) -> Any:
        return [recorded] if op == "generations" else call(op, **params)

    monkeypatch.setattr(script.session, "call", answer)
    script.execute()
    assert post.bodies[0]["from"] == {"generation": 3, "set": None}
    assert post.bodies[0]["to"] == {"generation": 2, "set": "ddtree 0.9.0"}


def test_a_bug_in_the_telling_fails_no_rollout(
    script: Script, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifying, "origin_of", None)
    assert script.execute().exit_code == 0
    assert [text.partition(":")[0] for text in warnings(script)] == ["nobody was told"] * 2
    assert post.bodies == []


@pytest.mark.parametrize(("exit_code", "event"), [(0, "success"), (11, "failure")])
def test_a_confirm_tells_the_end_alone(post: Post, exit_code: int, event: str) -> None:
    report = Report(
        command="confirm",
        verdict="fail" if exit_code else "pass",
        exit_code=exit_code,
        summary="so it is",
        generation=4,
    )
    session = session_of(hooked())
    assert notifying.tell(session, report, "because") is report
    (end,) = post.bodies
    assert (end["event"], end["command"], end["why"]) == (event, "confirm", "because")
    assert end["generation"] == end["to"]["generation"] == 4
    notifying.tell(session_of(SERVICE), report, "")
    assert len(post.bodies) == 1


# -- the guard's ---------------------------------------------------------------------------------


def session_of(service: Any) -> Session:
    host = SimpleNamespace(name="alpha", services={"serve": service})
    return cast(Session, SimpleNamespace(host=host, service=service, emit=ignore))


def test_what_the_guard_is_given() -> None:
    assert notifying.guards_terms(session_of(hooked(form="slack"))) == {
        "host": "alpha",
        "next": "opsctl status alpha",
        "hooks": [
            {
                "url": f"https://hooks.example/{SECRET}",
                "form": "slack",
                "label": "webhook 1 (slack)",
            }
        ],
    }


@pytest.mark.parametrize("webhook", [{"on": ["start"]}, {"url": "env:NOT_SET_ANYWHERE"}])
def test_what_it_is_not_given(webhook: dict[str, Any]) -> None:
    assert notifying.guards_terms(session_of(hooked(**webhook))) is None
    assert notifying.guards_terms(session_of(SERVICE)) is None


def test_a_notice_of_the_guard_s_that_failed_is_told() -> None:
    report = {"at": 0.0, "why": "x", "to": 3, "serving": True, "healthy": True, "seconds": 1.0}
    outcomes = [{"label": "webhook 1 (json)", "error": ""}, {"label": "w 2", "error": "HTTP 404"}]
    text = guard_text.describe(report | {"notices": outcomes})
    assert text.endswith("; it could not tell w 2: HTTP 404")
    assert "webhook 1" not in text


# -- a test --------------------------------------------------------------------------------------


def test_a_test_without_webhooks_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="has no notices"):
        notifying.send_test(session_of(SERVICE))


def test_a_test_says_what_came_of_it(post: Post) -> None:
    report = notifying.send_test(session_of(hooked(on=["guard"])))
    assert (report.verdict, report.exit_code) == ("pass", 0)
    assert report.summary == "1 of 1 notice accepted"
    assert post.events == ["test"]
    post.error = NotDelivered("HTTP 500")
    report = notifying.send_test(session_of(hooked()))
    assert (report.verdict, report.exit_code) == ("fail", 3)
    assert report.reasons[0].message == "webhook 1 (json), from here: HTTP 500"
