"""history, verify and confirm, from the facts of a scripted host."""

from __future__ import annotations

import base64
import hashlib
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE, facts

from opsctl.errors import LockHeld, Refused
from opsctl.events import Event
from opsctl.report import Report
from opsctl.rollout import confirming, drift, observe
from opsctl.rollout.doctor import examine
from opsctl.rollout.history import audit_log, history, moves
from opsctl.rollout.run import Options
from opsctl.rollout.serving import Serving
from opsctl.rollout.session import Session
from opsctl.rollout.verify import verify

VERSION, FOLDER = "0.5.12.post1", "/opt/venv/sglang"
SET = {"name": "ddtree", "version": "1.1.0", "digest": "d"}
TERMS = {"command": "deploy", "who": "ann@laptop", "armed": 0.0, "to": 0, "target": 1}
HOLDER = {"who": "bob@ci", "why": "a deploy", "since": 0.0, "pid": 7}


def generation(number: int, status: str, predecessor: int | None, **more: Any) -> dict[str, Any]:
    return {
        "number": number,
        "status": status,
        "predecessor": predecessor,
        "set": SET if number else None,
        "files": {"a.py": {"sha256": f"h{number}", "pristine_sha256": "h0"}},
        "version": VERSION,
        "package_dir": FOLDER,
        "created": 0.0,
        "who": "ann@laptop",
        "why": "a reason",
        **more,
    }


FOUND = generation(0, "found", None)
ONE = generation(1, "confirmed", 0, verdict={"verdict": "pass", "accept_len": 5.5, "ready_s": 9.0})
ON_DISK = {"a.py": {"sha256": "h1", "record_sha256": "h0"}}


class FakeSession:
    host = SimpleNamespace(name="alpha")
    service = SERVICE
    token = "t"

    def __init__(
        self, changes: dict[str, Any] | None = None, records: list[dict[str, Any]] | None = None
    ) -> None:
        self.records = [FOUND, ONE] if records is None else records
        base = {
            "generation": self.records[-1] if self.records else None,
            "install.files": ON_DISK,
            "install.audit": {"modified": ["a.py"], "missing": [], "extra": []},
        }
        self.facts = facts({**base, **(changes or {})})
        self.facts.setdefault("state_fault", None)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.events: list[Event] = []
        self.swap_fault: Refused | None = None

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def inspect(self, audit: bool = False) -> dict[str, Any]:
        return self.facts

    def lock_state(self) -> dict[str, Any]:
        return {**self.facts["guard"], "holder": self.facts["lock"], "by_guard": False}

    def lock(self, why: str, wait: float = 0.0) -> None:
        self.calls.append(("lock", {"why": why}))

    def call(self, op: str, **params: Any) -> Any:
        if op == "check_swap" and self.swap_fault:
            raise self.swap_fault
        self.calls.append((op, params))
        entries = [{"event": "lock", "time": 0.0}]
        answers = {"generations": self.records, "audit_log": entries}
        return answers.get(op)


def check(changes: dict[str, Any] | None = None, **more: Any) -> Report:
    return verify(cast(Session, FakeSession(changes, **more)))


def codes(report: Report) -> list[str]:
    return [reason.code for reason in report.reasons]


# -- history ---------------------------------------------------------------------------------


def test_the_history_says_who_why_and_how_it_ended() -> None:
    one = {**ONE, "from": "10.0.0.9", "argv": ["/x", "--flag"]}
    report = history(cast(Session, FakeSession(records=[FOUND, one])))
    found, row = report.data["generations"]
    assert (row["number"], row["who"], row["from"]) == (1, "ann@laptop", "10.0.0.9")
    assert (row["why"], row["version"], row["set"]["name"]) == ("a reason", VERSION, "ddtree")
    assert row["verdict"] == {"verdict": "pass", "accept_len": 5.5, "ready_s": 9.0}
    assert row["arguments"] == ["/x", "--flag"]
    assert (row["in_place"], row["rollback"]) == (True, False)
    assert (found["in_place"], found["rollback"]) == (False, True)
    assert (report.data["in_place"], report.data["rollback_to"]) == (1, 0)
    assert report.exit_code == 0


def test_a_gap_in_the_history_is_told() -> None:
    last = generation(7, "confirmed", 6)
    report = history(
        cast(Session, FakeSession(records=[FOUND, generation(4, "confirmed", 3), last]))
    )
    assert report.data["pruned"] == [1, 2, 3, 5, 6]
    assert "pruned: 1-3, 5-6" in report.summary
    assert report.data["rollback_to"] is None, "what came before is gone"
    assert history(cast(Session, FakeSession())).data["pruned"] == []


def test_a_damaged_record_is_shown() -> None:
    broken = {"number": 0, "fault": {"message": "0.json is damaged", "remedy": ""}}
    report = history(cast(Session, FakeSession(records=[broken, ONE])))
    assert report.data["generations"][0]["fault"] == "0.json is damaged"
    assert "damaged: 0" in report.summary


def test_a_host_without_any_deploy_has_no_history() -> None:
    report = history(cast(Session, FakeSession(records=[])))
    assert (report.data["generations"], report.data["rollback_to"]) == ([], None)
    assert report.summary == "nothing was ever deployed here"


def test_the_history_says_what_goes_further_back_than_a_plain_rollback() -> None:
    records = [FOUND, ONE, generation(2, "rolled_back", 1)]
    report = history(cast(Session, FakeSession({"generation": ONE}, records)))
    assert report.data["rollback_to"] is None
    assert "opsctl rollback alpha 0 goes before generation 1" in report.summary


def test_a_generation_that_changed_the_unit_is_marked() -> None:
    unit = {"unit": {"/etc/systemd/system/serve.service": {"sha256": "u"}}}
    records = [FOUND, ONE | unit, generation(2, "confirmed", 1) | unit, generation(3, "x", 2)]
    report = history(cast(Session, FakeSession(records=records)))
    assert [row["with_unit"] for row in report.data["generations"]] == [False, True, False, True]


LOG: list[dict[str, Any]] = [
    {"event": "lock", "who": "ann", "why": "a deploy"},
    {"event": "stage", "number": 1},
    {"event": "swap", "number": 1, "who": "ann"},
    {"event": "confirmed", "number": 1},
    {"event": "lock", "who": "bob", "why": "it is slow"},
    {"event": "swap", "number": 0, "time": 5.0},
    {"event": "lock", "who": "eve", "why": "again"},
    {"event": "stage", "number": 2},
    {"event": "swap", "number": 2, "who": "eve", "why": "again"},
    {"event": "lock", "who": "eve", "why": "restoring after opsctl deploy"},
    {"event": "swap", "number": 0, "who": "eve", "why": "it died"},
    {"event": "guard.done", "who": "the guard on this host", "to": 0, "why": "lost"},
]


def test_the_history_tells_of_every_way_back() -> None:
    told = [(m["what"], m["number"], m["who"], m["why"]) for m in moves(LOG)]
    assert told == [
        ("rollback", 0, "bob", "it is slow"),  # by the lock: an older opsctl's log
        ("restore", 0, "eve", "it died"),
        ("guard", 0, "the guard on this host", "lost"),
    ]
    assert moves(LOG)[0]["time"] == 5.0


def test_the_log() -> None:
    report = audit_log(cast(Session, FakeSession()), 5)
    assert report.summary == "1 entry"
    assert report.data["entries"][0]["event"] == "lock"


# -- verify ----------------------------------------------------------------------------------


def test_a_clean_host() -> None:
    report = check()
    assert (report.exit_code, report.verdict, codes(report)) == (0, "pass", [])
    assert (
        check(
            {"install.audit": {"modified": [], "missing": [], "extra": []}, "install.files": {}},
            records=[],
        ).exit_code
        == 0
    )


AUDIT = {"modified": ["a.py", "b.py"], "missing": ["c.py"], "extra": ["d.py"]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"install.files": {"a.py": {"sha256": "x", "record_sha256": "h0"}}}, ["file"]),
        ({"install.files": {"a.py": {"sha256": None, "record_sha256": "h0"}}}, ["file"]),
        ({"install.files": {"a.py": {"sha256": "h0", "record_sha256": "h0"}}}, ["reinstalled"]),
        ({"install.audit": AUDIT}, ["modified", "missing", "extra"]),
        (
            {"install.audit": {**AUDIT, "modified": [f"{n}.py" for n in range(99)]}},
            ["modified", "missing", "extra"],
        ),
        ({"install.version": "0.6"}, ["version", "modified"]),
        ({"install.package_dir": "/elsewhere"}, ["version", "modified"]),
        ({"install.editable": True}, ["editable"]),
        ({"swap": {"from": 0, "to": 1}}, ["swap"]),
        ({"install.leftovers": ["/x/.opsctl-next-sglang"]}, ["leftover"]),
        ({"guard.terms": TERMS}, ["guard_pending"]),
        ({"state_fault": {"message": "damaged", "remedy": "mend", "code": "x"}}, ["state"]),
    ],
)
def test_a_finding_is_named_with_its_remedy(changes: dict[str, Any], expected: list[str]) -> None:
    report = check(changes)
    assert codes(report) == expected
    assert (report.exit_code, report.verdict) == (3, "fail")
    assert all(reason.remedy for reason in report.reasons)


def test_a_units_file_is_compared_where_the_generation_has_it() -> None:
    path = "/etc/systemd/system/serve.service"
    one = {**ONE, "unit": {path: {"sha256": hashlib.sha256(b"[Unit]").hexdigest()}}}
    text = base64.b64encode(b"[Unit]").decode()
    same = {"unit_files": {"folder": "/etc/systemd/system", "files": {path: text}}}
    assert codes(check(same, records=[FOUND, one])) == []
    gone = {"unit_files": {"folder": "/etc/systemd/system", "files": {}}}
    assert codes(check(gone, records=[FOUND, one])) == ["unit_file"]


def test_while_somebody_is_at_work_nothing_is_left_over() -> None:
    staged = generation(2, "staged", 1)
    changes = {"lock": HOLDER, "generation": ONE, "guard.terms": TERMS}
    report = check(changes, records=[FOUND, ONE, staged])
    assert codes(report) == []
    assert [f["name"] for f in report.data["findings"]] == ["lock"]
    report = check({"generation": ONE}, records=[FOUND, ONE, staged])
    assert codes(report) == ["staged"]
    later = generation(3, "confirmed", 1)
    assert "staged" not in codes(check({"generation": ONE}, records=[FOUND, ONE, staged, later]))


def test_a_way_back_that_is_lost_is_a_finding() -> None:
    session = FakeSession()
    session.swap_fault = Refused("the stored content h0 is missing", remedy="reinstall")
    report = verify(cast(Session, session))
    assert codes(report) == ["rollback"]


@pytest.mark.parametrize(("healthy", "exit_code"), [(True, 0), (False, 3)])
def test_what_the_guard_did_counts_if_it_ended_badly(healthy: bool, exit_code: int) -> None:
    done = {"at": 0.0, "to": 1, "why": "lost", "serving": True, "healthy": healthy, "seconds": 9.0}
    assert check({"guard.report": done}).exit_code == exit_code


def test_what_cannot_be_looked_at_is_refused() -> None:
    fault = {"message": "no such Python", "remedy": "", "code": "python_missing"}
    with pytest.raises(Refused, match="no such Python"):
        check({"install": {"fault": fault}})


def status(monkeypatch: pytest.MonkeyPatch, session: FakeSession) -> Report:
    serving = Serving("pass", "", "serving tiny", ("tiny",))
    monkeypatch.setattr(observe, "serving_of", lambda *_: serving)
    monkeypatch.setattr(observe, "last_incident", lambda _: None)
    return observe.status(cast(Session, session))


def test_status_of_a_rollout_whose_end_is_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    report = status(monkeypatch, FakeSession({"guard.terms": TERMS}))
    assert (report.verdict, report.exit_code) == ("inconclusive", 12)
    assert codes(report) == ["guard_pending"]
    assert "the deploy of ann@laptop, begun" in report.summary
    assert "opsctl confirm alpha" in report.reasons[0].remedy
    assert "opsctl rollback alpha" in report.reasons[0].remedy
    at_work = FakeSession({"guard.terms": TERMS, "lock": HOLDER})
    for session in (at_work, FakeSession()):
        assert status(monkeypatch, session).exit_code == 0


def test_status_and_verify_name_what_a_hand_did(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "generation 1 holds a file changed by hand: a.py"
    session = FakeSession(records=[FOUND, {**ONE, "adopted": ["a.py"]}])
    report = status(monkeypatch, session)
    assert (report.exit_code, report.data["adopted"]) == (0, ["a.py"])
    assert text in report.summary
    report = verify(cast(Session, session))
    assert (report.exit_code, report.verdict) == (0, "pass")
    assert report.summary.startswith(text)
    assert [f["name"] for f in report.data["findings"]] == ["by_hand"]


def test_an_edit_has_the_same_remedy_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"install.files": {"a.py": {"sha256": "x", "record_sha256": "h0"}}}
    session = FakeSession(changes)
    wanted = drift.remedy("alpha", 1)
    assert all(way in wanted for way in ("opsctl rollback alpha 1", "deploy alpha --adopt"))
    assert all(way in wanted for way in ("into a patch", "pip install --force-reinstall"))
    report = status(monkeypatch, session)
    assert (report.exit_code, report.reasons[0].remedy) == (11, wanted)
    found = verify(cast(Session, session)).reasons
    (record,) = (f for f in examine(session.facts, SERVICE, None, "alpha") if f.name == "record")
    for remedy in (found[0].remedy, record.remedy):
        assert remedy == f"opsctl plan alpha shows the difference; {wanted}"


def test_a_lost_deploy_is_not_to_be_deployed_again_while_the_guard_waits() -> None:
    staged = [FOUND, generation(1, "staged", 0)]
    (lost,) = (
        r for r in check({"guard.terms": TERMS}, records=staged).reasons if r.code == "staged"
    )
    assert "opsctl confirm alpha" in lost.remedy
    assert "opsctl rollback alpha" in lost.remedy
    assert "opsctl deploy" not in lost.remedy
    (gone,) = check(records=staged).reasons
    assert "opsctl deploy alpha" in gone.remedy


# -- confirm ---------------------------------------------------------------------------------

STAGED = generation(1, "staged", 0)


class Proof(SimpleNamespace):
    def to_json(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch) -> Proof:
    proof = Proof(
        verdict="pass",
        reasons=(),
        notes=(),
        accept_len=5.5,
        verify_steps=9,
        tokens=12,
        acceptance=None,
        level="quick",
        exam=None,
    )
    monkeypatch.setattr(confirming, "prove", lambda session: proof)
    ready = Report(
        command="wait", verdict="pass", exit_code=0, summary="ready", data={"ready_s": 7.5}
    )
    monkeypatch.setattr(observe, "wait", lambda session, options: ready)
    return proof


def confirm(session: FakeSession, **options: Any) -> Report:
    return confirming.confirm(cast(Session, session), Options(**options))


def made(session: FakeSession) -> list[str]:
    return [op for op, _ in session.calls if op in {"lock", "conclude", "disarm_guard"}]


def test_a_lost_deploy_is_confirmed(verdict: Proof) -> None:
    session = FakeSession({"guard.terms": TERMS}, [FOUND, STAGED])
    report = confirm(session)
    assert (report.exit_code, report.generation) == (0, 1)
    assert made(session) == ["lock", "conclude", "disarm_guard"]
    concluded = dict(session.calls)["conclude"]
    assert (concluded["number"], concluded["status"]) == (1, "confirmed")
    assert (concluded["load_seconds"], concluded["verdict"]["accept_len"]) == (7.5, 5.5)


@pytest.mark.parametrize(("word", "exit_code"), [("fail", 11), ("inconclusive", 12)])
def test_without_proof_the_guard_stays(verdict: Proof, word: str, exit_code: int) -> None:
    verdict.verdict, verdict.reasons = word, ("accept length 1.0",)
    session = FakeSession({"guard.terms": TERMS}, [FOUND, STAGED])
    report = confirm(session)
    assert (report.exit_code, made(session)) == (exit_code, ["lock"])
    assert "leave it to the guard" in report.reasons[0].remedy


def test_a_lost_restart_is_confirmed_without_a_word_about_what_was_found(verdict: Proof) -> None:
    terms = {**TERMS, "command": "restart", "target": None, "to": None}
    session = FakeSession({"guard.terms": terms}, [FOUND])
    assert confirm(session).exit_code == 0
    assert made(session) == ["lock", "disarm_guard"]


@pytest.mark.parametrize(
    ("changes", "records", "code"),
    [
        ({}, [FOUND, ONE], "nothing_to_confirm"),
        ({}, [], "nothing_to_confirm"),
        ({"guard.terms": {**TERMS, "target": 2}}, [FOUND, ONE], "nothing_to_confirm"),
        ({"swap": {"from": 0, "to": 1}, "guard.terms": TERMS}, [FOUND, STAGED], "swap_under_way"),
    ],
)
def test_nothing_to_confirm(
    verdict: Proof, changes: dict[str, Any], records: list[dict[str, Any]], code: str
) -> None:
    session = FakeSession(changes, records)
    with pytest.raises(Refused) as caught:
        confirm(session)
    assert (caught.value.code, bool(caught.value.remedy)) == (code, True)
    assert made(session) == []


def test_a_rollout_that_goes_on_is_left_to_its_client(verdict: Proof) -> None:
    session = FakeSession({"lock": HOLDER, "guard.terms": TERMS}, [FOUND, STAGED])
    with pytest.raises(LockHeld, match="bob@ci"):
        confirm(session)


def test_what_does_not_get_ready_is_not_confirmed(
    verdict: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Report(command="wait", verdict="fail", exit_code=11, summary="it died")
    monkeypatch.setattr(observe, "wait", lambda session, options: dead)
    session = FakeSession({"guard.terms": TERMS}, [FOUND, STAGED])
    with pytest.raises(Refused, match="it died"):
        confirm(session)
    assert made(session) == []
