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


# What is given, as the unit has it, and what is left of it once it is read.
OPTIONS = st.lists(
    st.sampled_from(
        [
            ("--speculative-algorithm=DDTREE", ()),
            ('"--speculative-algorithm=DDTREE"', ()),
            ("--speculative-draft-model-path /d", ()),
            ('--speculative-draft-model-path "/my draft"', ()),
            ("--speculative-draft-model-path='/my draft'", ()),
            ("--speculative-draft-model-path ${DRAFT}", ()),
            ("--speculative-draft-model-path $DRAFT", ()),
            ("--speculative-accept-threshold-acc -1.0", ()),
            (r"--speculative-draft-model-path /my\x20draft", ()),
            ('--speculative-draft-model-path ""', ()),
            ("--speculative-adaptive", ()),
            ("--speculative-ddtree-chain-seed", ()),
            ("--enable-metrics", ("--enable-metrics",)),
            ("--tp-size=8", ("--tp-size=8",)),
            ("--model-path /m-speculative", ("--model-path", "/m-speculative")),
            ("--model-path /m--speculative-x", ("--model-path", "/m--speculative-x")),
            ('--chat-template="/m--speculative-x"', ("--chat-template=/m--speculative-x",)),
            ('--chat-template "/a b%i"', ("--chat-template", "/a b%i")),
            ("$MORE", ("$MORE",)),
        ]
    ),
    max_size=8,
)


@given(OPTIONS, st.sampled_from([" ", "\t ", " \\\n    ", " \\\n # none \\\n"]))
def test_any_order_of_arguments(options: list[tuple[str, tuple[str, ...]]], joint: str) -> None:
    kept = ["/python", "-m", "server"]
    text = "[Service]\n  ExecStart = " + joint.join([*kept, *(each for each, _ in options)]) + "\n"
    kept += [word for _, left in options for word in left]
    if all(left for _, left in options):
        with pytest.raises(HostFault) as caught:
            plain.without_speculation(text)
        assert caught.value.code == "not_speculative"
    else:
        assert words(plain.without_speculation(text)) == kept


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            r""""A=--x \"/my draft\" --speculative-draft-model-path \"/a b\" --y" B=1""",
            r""""A=--x \"/my draft\" --y" B=1""",
        ),
        ("A=--speculative-algorithm=X", '"A="'),
        ("'A=--speculative-adaptive caf\\xc3\\xa9' C=%n", '"A=caf\\xc3\\xa9" C=%n'),
    ],
)
def test_variables(before: str, after: str) -> None:
    found = plain.without_speculation(f"[Service]\nEnvironment={before}\nExecStart=/x $A\n")
    assert f"Environment={after}\n" in found


def test_a_command_within_a_command() -> None:
    text = r'''ExecStart=/bin/sh -c "exec python --speculative-algorithm X --name \"a b\" --tp 8"'''
    kept = r'''ExecStart=/bin/sh -c "exec python --name \"a b\" --tp 8"'''
    assert kept + "\n" in plain.without_speculation("[Service]\n" + text + "\n")


@pytest.mark.parametrize("odd", ['"/d', "'/d", '/d"x'])
def test_what_cannot_be_told_apart(odd: str) -> None:
    with pytest.raises(HostFault) as caught:
        plain.without_speculation(f"[Service]\nExecStart=/x --speculative-draft-model-path {odd}")
    assert caught.value.code == "unit_unsplittable"


def test_a_unit_that_is_plain_already() -> None:
    first = plain.without_speculation(UNIT)
    own = f"# {plain.path('serve.service')}\n{first}"
    later = "\n# /etc/systemd/system/serve.service.d/zzz.conf\n[Service]\nEnvironment=B=1\n"
    assert plain.without_speculation(UNIT + own) == first
    assert "Environment=B=1" in plain.without_speculation(UNIT + own + later)


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

    with path.open() as f:
        (tmp_path / "text").write_text(f"{UNIT}\n# {path}\n{f.read()}")
    before = path.read_text()
    unit.control("serve.service", "start", speculative=False)
    assert path.read_text() == before, "it is made of the unit's own files"
    (tmp_path / "told").write_text("daemon-reload\n")

    unit.control("serve.service", "stop")
    assert path.exists(), "a stop changes nothing of it"
    unit.control("serve.service", "start")
    assert not path.exists()
    assert not path.parent.exists()
    assert (tmp_path / "told").read_text().count("daemon-reload") == 2
