"""SGLang's command line, as units and the scripts that they start spell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsctl.hostside import commandline as cl
from opsctl.hostside.commandline import Launch

PYTHON = "/srv/venv/bin/python"


def of_unit(command: str, folder: str = "/", **variables: str) -> Launch | None:
    return cl.of_unit(command, variables, folder, {"i": "one", "%": "%"})[0]


def arguments(command: str, **variables: str) -> list[str]:
    found = of_unit(command, **variables)
    assert found is not None, command
    return found.arguments


# -- ExecStart -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        f"{PYTHON} -m sglang.launch_server --port 1",
        f"-{PYTHON} -u -X dev -m sglang.launch_server --port 1",
        f"/usr/bin/env HF_HUB_OFFLINE=1 {PYTHON} -m sglang.launch_server --port 1",
        f"/usr/bin/numactl -N 0 {PYTHON} /srv/venv/lib/python3.11/site-packages/sglang/"
        "launch_server.py --port 1",
        f"{PYTHON} /srv/venv/bin/sglang serve --port 1",
        f"/bin/bash -lc 'exec {PYTHON} -m sglang.launch_server --port 1'",
        f'/bin/sh -c "cd /tmp && {PYTHON} -m sglang.launch_server --port 1; echo over"',
    ],
)
def test_a_server_is_found_in_a_command(command: str) -> None:
    found = of_unit(command)
    assert found is not None
    assert (found.python, found.arguments) == (PYTHON, ["--port", "1"])


@pytest.mark.parametrize(
    "command",
    [
        f"{PYTHON} -m http.server",
        "/usr/bin/docker run --gpus all lmsysorg/sglang python3 -m sglang.launch_server",
        "/usr/bin/podman run image sglang serve --port 1",
        f"{PYTHON} -m sglang.bench_serving --port 1",
        "/bin/sh -c 'grep sglang serve.txt'",
        "/bin/sh -c",
        "",
    ],
)
def test_other_commands_start_no_server(command: str) -> None:
    assert of_unit(command) is None


def test_a_units_variables_and_quotes() -> None:
    words = arguments(
        f"{PYTHON} -m sglang.launch_server --model-path ${{MODEL}} $MORE '--json={{\"a\": 1}}' "
        '"--name=two words" --dollar $$x --instance %i --percent 5%% $NONE',
        MODEL="/models/a b",
        MORE="--tp-size 8",
    )
    assert words == [
        *("--model-path", "/models/a b", "--tp-size", "8", '--json={"a": 1}', "--name=two words"),
        *("--dollar", "$x", "--instance", "one", "--percent", "5%"),
    ]


# -- scripts ---------------------------------------------------------------------------------


def test_a_script_that_does_what_they_do(tmp_path: Path) -> None:
    inner = tmp_path / "serve.sh"
    inner.write_text(
        "#!/usr/bin/env bash\nset -euo pipefail\n"
        "# python -m sglang.launch_server --port 9 is what it was\n"
        "MODEL=/models/kimi  # the model\n"
        'export PORT="${PORT:-30001}"\n'
        "source /srv/venv/bin/activate\ncd /srv\n"
        "if [ -e /etc/x ]; then echo x; fi\n"
        "exec numactl -N 0 venv/bin/python -u -m sglang.launch_server \\\n"
        '    --model-path "$MODEL" --port $PORT --served-model-name "$1" "$@" $UNKNOWN\n'
    )
    outer = tmp_path / "run"
    outer.write_text(f"#!/bin/sh\nexec {inner} kimi --trust-remote-code\n")
    found = of_unit(f"{outer} ignored")
    assert found is not None
    assert (found.python, found.via, found.folder) == (PYTHON, str(inner), "/srv")
    assert found.arguments == [
        *("--model-path", "/models/kimi", "--port", "30001", "--served-model-name", "kimi"),
        *("kimi", "--trust-remote-code", "$UNKNOWN"),
    ]


def test_an_activated_environment_decides_which_python(tmp_path: Path) -> None:
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("python", "sglang"):
        (folder / name).write_text(f"#!{folder}/python\n")
        (folder / name).chmod(0o755)
    for line in ("python -m sglang.launch_server --port 1", "sglang serve --port 1"):
        script = tmp_path / "run.sh"
        script.write_text(f". {folder}/activate\n{line}\n")
        found = of_unit(f"/bin/bash {script}")
        assert found is not None
        assert (found.python, found.arguments) == (f"{folder}/python", ["--port", "1"])


def test_a_script_that_calls_itself_ends(tmp_path: Path) -> None:
    script = tmp_path / "loop.sh"
    script.write_text(f"#!/bin/sh\n{script}\n")
    assert of_unit(str(script)) is None


@pytest.mark.parametrize("text", ["#!/bin/sh\necho 'no end\n", "#!/bin/sh\n\0\xff", "#!/bin/sh"])
def test_a_script_that_makes_no_sense_starts_nothing(text: str, tmp_path: Path) -> None:
    script = tmp_path / "odd.sh"
    script.write_text(text, encoding="latin-1")
    assert of_unit(str(script)) is None


@pytest.mark.parametrize(
    ("head", "python"),
    [
        ("#!/srv/venv/bin/python3\n", "/srv/venv/bin/python3"),
        (
            "#!/bin/sh\n'''exec' \"/srv/a b/bin/python\" \"$0\" \"$@\"\n' '''\n",
            "/srv/a b/bin/python",
        ),
        ("#!/bin/sh\necho no trampoline\n", None),
        ("no script\n", None),
    ],
)
def test_a_console_script_names_its_python(head: str, python: str | None, tmp_path: Path) -> None:
    path = tmp_path / "sglang"
    path.write_text(head)
    assert cl.interpreter_of(str(path)) == python
