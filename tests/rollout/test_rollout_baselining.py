"""Which baseline is compared with, and when none is made."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rollout_tools import SERVICE, facts

from opsctl.baseline import Answer, Baseline, Identity, Prompt, load
from opsctl.baseline.prompts import bundled
from opsctl.errors import Refused, UsageError
from opsctl.events import Event
from opsctl.rollout import baselining
from opsctl.rollout.baselining import bring, choose, command, export, named, take
from opsctl.rollout.session import Session
from opsctl.smoke import ServerFacts

NOW = Identity(
    served_name="tiny", model_path="/m", files={"config.json": "a"}, precision="bfloat16"
)


def baseline(reference: str = "plain", **changes: Any) -> Baseline:
    answer = Answer(prompt="p", sha256="s", output_ids=(1,), text="t", finish_reason="stop")
    return Baseline(
        created=changes.pop("created", 1.0),
        host="alpha",
        service="serve",
        reference=cast(Any, reference),
        identity=NOW.model_copy(update=changes),
        answers=(answer,),
    )


def answers_to(*prompts: Prompt) -> tuple[Answer, ...]:
    return tuple(
        Answer(prompt=each.id, sha256=each.sha256, output_ids=(1,), text="t", finish_reason="stop")
        for each in prompts
    )


class Host:
    """Keeps what is given to it, the last one first."""

    host = SimpleNamespace(name="alpha")
    service = SERVICE

    def __init__(self, *known: Baseline) -> None:
        self.texts = {each.id: each.model_dump_json() for each in known}
        self.told: list[Event] = []

    def emit(self, event: Event) -> None:
        self.told.append(event)

    def call(self, op: str, **params: Any) -> Any:
        if op == "list_baselines":
            return list(self.texts)
        if op == "read_baseline":
            return self.texts[params["name"]]
        assert op == "write_baseline"
        self.texts = {params["name"]: params["text"], **self.texts}
        return {"path": f"/var/{params['name']}.json"}

    def inspect(self) -> dict[str, Any]:
        return facts()

    def unit(self) -> None:
        return None


def session(*known: Baseline) -> Session:
    return cast(Session, Host(*known))


def test_plain_before_trusted_and_the_last_before_earlier_ones() -> None:
    trusted, late, early = baseline("trusted"), baseline(created=2.0), baseline(created=1.0)
    assert choose(session(trusted, late, early), NOW, None) == (late, "")
    assert choose(session(trusted), NOW, None) == (trusted, "")


def test_for_the_deep_level_the_last_that_has_its_prompts() -> None:
    deep = (Prompt(id="a", kind="words", text="oak"), Prompt(id="b", kind="words", text="elm"))
    late = baseline(created=3.0)
    full, half = (
        late.model_copy(update={"created": when, "answers": late.answers + answers})
        for when, answers in ((2.0, answers_to(*deep)), (1.0, answers_to(deep[0])))
    )
    assert choose(session(late, half, full), NOW, None, deep) == (full, "")
    assert choose(session(late, half), NOW, None, deep) == (half, "")
    assert choose(session(late, half, full), NOW, None) == (late, "")
    assert choose(session(), NOW, None, deep)[1].endswith("capture alpha --restart --deep")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"precision": "float16"}, "the precision is float16 there and bfloat16 here"),
        ({"quantization": "int4"}, "the quantization is int4 there and none here"),
        ({"kv_cache_dtype": "fp8"}, "the type of the KV cache is fp8 there and none here"),
        ({"files": {"config.json": "b"}}, "the model is another one (config.json)"),
        ({"files": {}}, "the model is another one (config.json)"),
    ],
)
def test_another_model_or_precision_is_refused(changes: dict[str, Any], why: str) -> None:
    other = baseline(**changes)
    found, told = choose(session(other), NOW, None)
    assert found is None
    assert why in told
    with pytest.raises(Refused) as caught:
        choose(session(other), NOW, other.id)
    assert caught.value.code == "baseline_unlike"
    assert why in caught.value.message


def test_another_version_or_argument_is_no_reason() -> None:
    old = baseline(version="0.5.11", algorithm="DFLASH", arguments={"tp_size": 8})
    assert choose(session(old), NOW, None) == (old, "")


def test_without_one_the_way_to_one_is_told() -> None:
    found, told = choose(session(), NOW, None)
    assert found is None
    assert "opsctl baseline capture alpha" in told
    with pytest.raises(Refused, match="no baseline to export") as caught:
        export(session(), None)
    assert caught.value.remedy == "opsctl baseline capture alpha --restart"


def test_a_damaged_one_is_left_out_and_said() -> None:
    good = baseline()
    host = Host(good)
    host.texts = {"0123456789ab": '{"format": 2}', **host.texts}
    assert choose(cast(Session, host), NOW, None) == (good, "")
    assert "0123456789ab" in host.told[0].message


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text(baseline().model_dump_json())
    assert choose(session(), NOW, str(path)) == (baseline(), "")
    path.write_text("[]")
    with pytest.raises(UsageError, match=r"b\.json is no baseline"):
        choose(session(), NOW, str(path))


@pytest.mark.parametrize("name", ["nowhere.json", "./nowhere", "/", "a/" + "b" * 5000, "a\0.json"])
def test_a_file_that_is_not_there(name: str) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        choose(session(), NOW, name)


def test_what_is_no_file_is_an_id_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    known = baseline()
    assert named(session(known), known.id) == known
    with pytest.raises(KeyError):  # as the host is asked for it
        named(session(), "b" * 5000)
    Path("mine").write_text(known.model_dump_json())
    assert named(session(), "mine") == known
    assert bring(session(), Path("mine")).data["id"] == known.id


@pytest.mark.parametrize(
    ("algorithm", "files", "code"),
    [("DFLASH", {"config.json": "a"}, "speculative"), ("", {}, "model_unknown")],
)
def test_what_is_no_reference(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, files: dict[str, str], code: str
) -> None:
    monkeypatch.setattr(baselining, "require_ready", lambda *_: None)
    found = NOW.model_copy(update={"files": files})
    server = ServerFacts(algorithm=algorithm)
    monkeypatch.setattr(baselining, "subject", lambda _: (found, server))
    with pytest.raises(Refused) as caught:
        take(session(), None, trust=False)
    assert caught.value.code == code
    assert caught.value.remedy


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Host:
    """Whose server runs plainly and answers every prompt."""

    def asked(_: Session, prompts: tuple[Prompt, ...], **__: Any) -> list[Answer]:
        return list(answers_to(*prompts))

    monkeypatch.setattr(baselining, "require_ready", lambda *_: None)
    monkeypatch.setattr(baselining, "subject", lambda _: (NOW, ServerFacts()))
    monkeypatch.setattr(baselining, "_asked", asked)
    return Host()


@pytest.mark.parametrize("deep", [False, True])
def test_the_deep_levels_prompts_are_asked_on_request(captured: Host, deep: bool) -> None:
    take(cast(Session, captured), None, trust=False, deep=deep)
    (text,) = captured.texts.values()
    lacking = load(text, "it").lacks([*bundled().prompts, *bundled().deep])
    long = [each.id for each in bundled().prompts if each.long]  # another text by the server
    assert lacking == long + [each.id for each in bundled().deep if not deep]


def test_a_set_without_any_is_refused_at_once(captured: Host, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("version: 1\nprompts:\n  - {id: mine, kind: chat, text: Hello}\n")
    with pytest.raises(UsageError, match="no prompts for the deep level") as caught:
        take(cast(Session, captured), path, trust=False, deep=True)
    assert "--deep" in caught.value.remedy
    assert captured.texts == {}
    take(cast(Session, captured), path, trust=False)
    assert command(cast(Session, captured), path, deep=True) == (
        f"opsctl baseline capture alpha --restart --deep --prompts {path}"
    )
