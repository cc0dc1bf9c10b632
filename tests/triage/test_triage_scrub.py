"""What a bundle must not hold, by its sort."""

from __future__ import annotations

import pytest

from opsctl.journal import Entry
from opsctl.triage.scrub import HIDDEN, Scrubber

PLANT = "pLanTed5f3a9cZq"


@pytest.mark.parametrize(
    "text",
    [
        f"--api-key {PLANT}",
        f"--admin-api-key={PLANT} --port 1",
        f"--ssl-keyfile-password '{PLANT} x'",
        f"HF_TOKEN={PLANT}",
        f'export OPENAI_API_KEY="{PLANT}"',
        f"{{'hf_token': '{PLANT}', 'a': 1}}",
        f'{{"password": "{PLANT}"}}',
        f"password: {PLANT}",
        f"sk-{PLANT}",
        f"token hf_{PLANT} is bad",
        f"ghp_{PLANT}",
        f"glpat-{PLANT}",
        f"xoxb-{PLANT}",
        f"eyJhbGciOi.{PLANT}.{PLANT}",
        f"Authorization: Bearer {PLANT}",
        f"authorization: Basic {PLANT}==",
        f"https://ann:{PLANT}@pypi.example.org/simple",
        f"ftp://{PLANT}@files.example.org/x",
        f"proxy http://user:{PLANT}@proxy:3128 refused",
        f"https://hooks.slack.com/services/T00/B00/{PLANT}",
        f"https://discord.com/api/webhooks/123/{PLANT}",
        f"https://chat.example.org/hooks/{PLANT}",
        f"https://x.webhook.office.com/webhookb2/{PLANT}",
        f"GET https://bucket.example.org/a?X-Amz-Signature={PLANT}&b=1",
        f"https://x.example.org/?api_key={PLANT}",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PLANT}\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{PLANT}",
        f"Receive: obj=GenerateReqInput(text='{PLANT} and more', sampling_params={{}})",
        f'body: {{"messages": [{{"role": "user", "content": "{PLANT}"}}]}}',
    ],
)
def test_a_line(text: str) -> None:
    scrubber = Scrubber()
    assert PLANT not in scrubber.line(text)
    assert sum(scrubber.hidden.values()) > 0, "and it is counted"


@pytest.mark.parametrize(
    "text",
    [
        "max_total_num_tokens=4096, chunked_prefill_size=8192",
        "--tokenizer-path /models/k2 --max-total-tokens 4096",
        "Decode batch, #running-req: 1, #token: 9, token usage: 0.01, accept len: 3.00",
        "KeyError: 'layers'",
        "http://127.0.0.1:30001/v1/models",
        "api_key=None, admin_api_key=None",
        "DFLASH draft runner ready. mask_token=151669",
        'File "/opt/sglang/srt/models/dflash.py", line 10, in forward',
        "The size of tensor a (8) must match the size of tensor b (33)",
    ],
)
def test_what_a_report_needs_stays(text: str) -> None:
    scrubber = Scrubber()
    assert scrubber.line(text) == text
    assert not +scrubber.hidden


def test_a_secret_whose_text_is_known_is_hidden_wherever_it_stands() -> None:
    scrubber = Scrubber([PLANT, "", "x"])
    assert scrubber.line(f"weird({PLANT})x") == f"weird({HIDDEN})x"
    assert scrubber.hidden == {"known secrets": 1}


def test_no_variable_of_a_unit_keeps_its_value() -> None:
    text = (
        '[Service]\nEnvironment=HF_HOME=/a B="with blanks ' + PLANT + "\" 'C=" + PLANT + "'\n"
        f"Environment=LONG={PLANT} \\\n  MORE={PLANT}\nExecStart=/p --api-key {PLANT} --port 3\n"
    )
    shown = Scrubber().unit(text)
    assert PLANT not in shown
    assert "/a" not in shown
    assert "HF_HOME=" in shown
    assert "MORE=" in shown
    assert "--port 3" in shown


def test_values_by_their_names() -> None:
    given = {"api_key": PLANT, "Deep": [{"HF_TOKEN": PLANT, "port": 3}], "why": f"sk-{PLANT}"}
    shown = Scrubber().value({**given, "tokens": 4, "none": None, "mask_token": "<m>"})
    assert PLANT not in repr(shown)
    assert shown["Deep"][0]["port"] == 3
    assert (shown["tokens"], shown["none"], shown["mask_token"]) == (4, None, "<m>")


def test_a_users_text_over_several_lines() -> None:
    lines = [
        "[2026-11-30 03:00:00] Receive: obj=GenerateReqInput(text='first",
        f"second {PLANT}",
        f"[not a tag] {PLANT}",
        "[2026-11-30 03:00:01] Prefill batch, #new-seq: 1",
        "unprefixed, and of the server again",
    ]
    entries = [Entry(1.0, line, pid=7, identifier="python") for line in lines]
    other = Entry(1.0, "of another process", pid=8, identifier="x")
    shown = Scrubber().journal([*entries[:2], other, *entries[2:]])
    assert PLANT not in "\n".join(shown)
    assert shown[2].endswith("of another process")
    assert shown[4].endswith("Prefill batch, #new-seq: 1")
    assert shown[5].endswith("of the server again")


def test_a_private_key_over_several_lines() -> None:
    lines = ["-----BEGIN RSA PRIVATE KEY-----", PLANT, "-----END RSA PRIVATE KEY-----"]
    shown = Scrubber().journal(Entry(1.0, line, pid=7) for line in lines)
    assert PLANT not in "\n".join(shown)
