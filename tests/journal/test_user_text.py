"""What users write is in the journal too: it decides nothing, and is never shown."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from opsctl.journal import clean, diagnose, entry_from_text, redact
from opsctl.journal.rules import rule_base

LOG = Path(__file__).parent.parent / "sglang" / "data" / "healthy-0.5.12.post1-dflash-cpu.log"
HEALTHY = [clean(line) for line in LOG.read_bytes().decode().split("\n")]
EXAMPLES = [example for sign in rule_base().signs for example in sign.examples]
STAMP = "[2026-01-01 00:00:01 TP0] "
MARK = "zwölf Boxkämpfer"

# Where SGLang of one version or another logs a request, an answer or a batch. {r} is Python's
# repr of the user's text, {j} JSON's, {q} the text between quotes as it is.
FORMS = (
    "[2026-01-01 00:00:01] Receive: obj=GenerateReqInput(rid='7', text={r}, input_ids=None)",
    "[2026-01-01 00:00:01] Finish: obj=GenerateReqInput(rid='7', text={r}), out={{'text': {r}}}",
    "[2026-01-01 00:00:01] Receive: obj=GenerateReqInput(rid='7', text={q}, input_ids=None)",
    "[2026-01-01 00:00:01] Receive OpenAI: obj={{'messages': [{{'role': 'user', "
    "'content': {r}}}], 'model': 'k'}}",
    '{{"timestamp": "2026-01-01", "event": "request.received", "rid": "7", '
    '"obj": {{"text": {j}, "stream": false}}}}',
    "[2026-01-01 00:00:01 TP0] Scheduler watchdog debug info:",
    "self.cur_batch.reqs=[Req(rid=7, input_ids=[1, 2], origin_input_text={r}, output_ids=[3])]",
    "INFO 01-01 00:00:01 [logger.py:43] Received request chat-7: prompt: {r}, params: None",
    '[2026-01-01 00:00:01] INFO:     1.2.3.4:5 - "GET /v1/models?q={p} HTTP/1.1" 200 OK',
    "[2026-01-01 00:00:01] TokenizedGenerateReqInput(rid=7, input_text={r}, input_ids=[1])",
    '[2026-01-01 00:00:01] tool call {{"name": "f", "arguments": {j}}}',
)


def logged(form: str, text: str) -> str:
    path = text.replace(" ", "%20").replace('"', "%22")
    return form.format(r=repr(text), j=json.dumps(text), q=f'"{text}"', p=path)


@pytest.mark.parametrize("form", FORMS)
def test_no_example_of_a_rule_counts_as_user_text(form: str) -> None:
    lines = [*HEALTHY, *(logged(form, example) for example in EXAMPLES)]
    found = diagnose(entry_from_text(line) for line in lines)
    assert not found.incident, (found.kind, found.lines)


def test_user_text_anywhere_in_a_healthy_log() -> None:
    chance = random.Random(5)  # the same sequence each time
    for _ in range(20):
        lines = list(HEALTHY)
        for _ in range(20):
            text = " ".join(chance.sample(EXAMPLES, k=chance.randint(1, 3)))
            lines.insert(chance.randrange(len(lines)), logged(chance.choice(FORMS), text))
        found = diagnose(entry_from_text(line) for line in lines)
        assert not found.incident, (found.kind, found.lines)


@pytest.mark.parametrize("form", [form for form in FORMS if "{p}" not in form and "{" in form])
def test_user_text_is_not_shown(form: str) -> None:
    for text in (MARK, f"it's {MARK}", f'say "{MARK}"', f"a\\'b {MARK}", f"[{MARK}], ({MARK})"):
        line = logged(form, text)
        assert "Boxk" not in redact(line), line
        crash = STAMP + "Scheduler hit an exception: Traceback (most recent call last):"
        found = diagnose(entry_from_text(each) for each in [line, crash, "KeyError: 'x'"])
        assert "Boxk" not in json.dumps(found.to_json(), ensure_ascii=False)


def test_user_text_with_newlines_goes_on_until_a_record_of_the_servers() -> None:
    text = "line one\nScheduler hit an exception: Traceback (most recent call last):\nRuntimeError: CUDA error: an illegal memory access was encountered\nand so on"  # noqa: E501
    first, *rest = f'{STAMP}Receive: obj=GenerateReqInput(rid="7", text="{text}", x=1)'.split("\n")
    found = diagnose(entry_from_text(line) for line in [first, *rest])
    assert (found.incident, found.kind) == (False, "request_payload")
    crash = [STAMP + "Scheduler hit an exception: Traceback (most recent call last):", *rest[1:2]]
    assert diagnose(entry_from_text(line) for line in [first, *rest, *crash]).incident


def test_a_probe_of_ours_is_no_user() -> None:
    line = 'smoke: content="the the the the the the"'
    assert diagnose([entry_from_text(line)]).lines == (line,)
