"""A start without speculation: the drop-in that is made of a unit's own text."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsctl.hostside import plain, unit
from opsctl.hostside.errors import HostFault

pytest_plugins = ("hostside_fixtures",)

UNIT = """\
# /etc/systemd/system/serve.service
[Unit]
Description=SGLang --speculative-algorithm=DFLASH
[Service]
Environment=OPSCTL_EXTRA_ARGS=
ExecStart=/opt/python -m sglang.launch_server \\
    --model-path /m \\
    --speculative-algorithm=DFLASH \\
    --speculative-draft-model-path /d \\
    # --speculative-num-draft-tokens 8 \\
    --port 30001 \\
    $OPSCTL_EXTRA_ARGS
Restart=always
# /etc/systemd/system/serve.service.d/10-more.conf
[Service]
Environment="OPSCTL_EXTRA_ARGS=--dtype=float32 --speculative-ddtree-budget=32 --tp 8"
"""


def words(dropin: str) -> list[str]:
    """The arguments of its ExecStart, variables as they are."""
    text = dropin.partition("ExecStart=\n")[2].partition("ExecStart=")[2]
    return shlex.split(text.replace("\\\n", " "))


def test_all_but_speculation() -> None:
    found = plain.without_speculation(UNIT)
    assert words(found) == [
        *("/opt/python", "-m", "sglang.launch_server", "--model-path", "/m"),
        *("--port", "30001", "$OPSCTL_EXTRA_ARGS"),
    ]
    assert 'Environment="OPSCTL_EXTRA_ARGS=--dtype=float32 --tp 8"' in found
    assert "speculative" not in found.partition("[Service]")[2]
    assert "Restart" not in found, "only what it changes"


def test_the_last_word_of_a_quoted_variable() -> None:
    text = '[Service]\nEnvironment="A=--x --speculative-ddtree-budget=32"\nExecStart=/x $A\n'
    assert 'Environment="A=--x "\n' in plain.without_speculation(text)


def test_the_last_command_counts() -> None:
    dropin = "[Service]\nExecStart=\nExecStart=/other --speculative-algorithm EAGLE --port 1\n"
    assert words(plain.without_speculation(UNIT + dropin)) == ["/other", "--port", "1"]


OPTIONS = st.lists(
    st.sampled_from(
        [
            (),
            ("--speculative-algorithm=DDTREE",),
            ("--speculative-draft-model-path", "/d"),
            ("--speculative-flag",),
            ("--enable-metrics",),
            ("--tp-size=8",),
            ("--model-path", "/m-speculative"),
            ("$MORE",),
        ]
    ),
    max_size=8,
)


@given(OPTIONS, st.booleans())
def test_any_order_of_arguments(options: list[tuple[str, ...]], continued: bool) -> None:
    given_words = ["/python", "-m", "server", *(word for option in options for word in option)]
    kept = ["/python", "-m", "server"]
    kept += [w for option in options if not "".join(option).startswith("--spec") for w in option]
    joint = " \\\n    " if continued else " "
    text = f"[Service]\nExecStart={joint.join(given_words)}\n"
    if kept == given_words:
        with pytest.raises(HostFault) as caught:
            plain.without_speculation(text)
        assert caught.value.code == "not_speculative"
    else:
        assert words(plain.without_speculation(text)) == kept


def test_no_command() -> None:
    with pytest.raises(HostFault, match="no ExecStart"):
        plain.without_speculation("[Service]\nExecStart=/x\nExecStart=\n")


def test_the_next_start_takes_it_away(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "FOLDER", str(tmp_path / "run"))
    script = (
        (tools / "systemctl")
        .read_text()
        .replace("  show)", f"  cat) cat {tmp_path}/text; exit ;;\n  show)")
    )
    (tools / "systemctl").write_text(script)
    (tmp_path / "text").write_text(UNIT)
    path = Path(plain.path("serve.service"))

    unit.control("serve.service", "start", speculative=False)
    assert "--speculative" not in path.read_text().partition("[Service]")[2]
    told = (tmp_path / "told").read_text()
    assert told.index("daemon-reload") < told.index("--no-block start")

    unit.control("serve.service", "stop")
    assert path.exists(), "a stop changes nothing of it"
    unit.control("serve.service", "start")
    assert not path.exists()
    assert not path.parent.exists()
    assert (tmp_path / "told").read_text().count("daemon-reload") == 2
