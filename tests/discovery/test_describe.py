"""Facts of a host, as `discover` gives them, in; the text of an inventory out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsctl import inventory
from opsctl.discovery import describe, one_host
from opsctl.discovery.arguments import rest
from opsctl.inventory import Ssh
from opsctl.sglang.arguments import groups, value

SSH = Ssh(address="10.1.2.200", user="root", port=2200)
INSTALL = {"version": "0.5.12.post1", "editable": False, "package_dir": "/p/sglang"}
WORDS = ["--model-path", "/models/kimi", "--port=30001", "--host", "0.0.0.0", "--tp", "8"]


def unit(words: list[str] | None = None, **changes: Any) -> dict[str, Any]:
    given = WORDS if words is None else words
    return {
        "Id": "kimi.service",
        "ActiveState": "active",
        "settings": {},
        "arguments": given,
        "running": given,
        "effective": given,
        "via": "",
        "template": None,
        "environment": {},
        "secret_variables": [],
        "environment_files": [],
        "secrets": {},
        "model": value(given, "--model-path"),
        "python": "/venv/bin/python",
        "distribution": "sglang",
        "install": INSTALL,
        "loads": [],
        "set": None,
    } | changes


def facts(*units: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "units": list(units),
        "unclear": [],
        "containers": [],
        "user_units": [],
        "processes": [],
    } | changes


def written(tmp_path: Path, *units: dict[str, Any], **more: Any) -> tuple[str, inventory.Host]:
    """The text of an inventory of the host `ct200`, and what it is read as."""
    found = describe(facts(*units), "ct200", SSH, **more)
    text = one_host(found, "Written for a test.")
    path = tmp_path / "inventory.yaml"
    path.write_text(text, encoding="utf-8")
    return text, inventory.load(path).hosts["ct200"]


def test_a_plain_server_needs_few_lines(tmp_path: Path) -> None:
    text, host = written(tmp_path, unit())
    assert text.partition("hosts:\n")[2] == (
        "  ct200:\n"
        "    ssh:\n"
        "      address: 10.1.2.200\n"
        "      user: root\n"
        "      port: 2200\n"
        "    services:\n"
        "      kimi:\n"
        "        unit: kimi.service\n"
        "        python: /venv/bin/python # sglang 0.5.12.post1\n"
        "        port: 30001\n"
        "        model:\n"
        "          path: /models/kimi\n"
        "          served_name: /models/kimi\n"
        "        # load: no start in the journal got ready, so the default of 15m\n"
        "        smoke:\n"
        "          speculative: false # no --speculative-algorithm\n"
        "        launch: # what --with-unit would write the unit from\n"
        "          args:\n"
        "            - --tp=8\n"
    )
    assert host.ssh == SSH
    assert host.services["kimi"].launch.args == ("--tp=8",)


def test_what_sglang_leaves_out_is_its_default(tmp_path: Path) -> None:
    _, host = written(tmp_path, unit(["--model", "/m", "--speculative-algorithm", "EAGLE"]))
    service = host.services["kimi"]
    assert (service.port, service.listen, service.model.path) == (30000, "127.0.0.1", "/m")
    assert service.smoke.speculative


@pytest.mark.parametrize(
    ("seconds", "budget"), [([12.0], 120), ([640.2, 645.0, 601.0], 1320), ([61.0], 180)]
)
def test_the_budget_is_twice_the_slowest_load_in_whole_minutes(
    seconds: list[float], budget: float, tmp_path: Path
) -> None:
    loads = [{"at": 0.0, "seconds": each} for each in seconds]
    text, host = written(tmp_path, unit(loads=loads))
    assert host.services["kimi"].load.budget == budget
    for each in seconds:
        assert f"{each:.0f}" in text


def test_no_secret_and_where_it_comes_from(tmp_path: Path) -> None:
    words = [*WORDS, "--api-key", "[redacted]", "--admin-api-key=[redacted]", "--enable-metrics"]
    secrets = {"--api-key": "KIMI_KEY", "--admin-api-key": None}
    text, host = written(tmp_path, unit(words, secrets=secrets, secret_variables=["HF_TOKEN"]))
    service = host.services["kimi"]
    assert service.api_key == inventory.SecretRef(env="KIMI_KEY")
    assert service.launch.args == ("--tp=8", "--enable-metrics")
    assert "redacted" not in text
    assert "# --api-key is not copied" in text
    assert "1 secret variable left out" in text
    assert "HF_TOKEN" in text
    _, host = written(tmp_path, unit(words, secrets={"--api-key": None}))
    assert host.services["kimi"].api_key == inventory.SecretRef(env="SGLANG_API_KEY")


def test_remarks_alone_are_no_section(tmp_path: Path) -> None:
    words = ["--model-path", "/m", "--admin-api-key", "[redacted]"]
    secrets = {"--admin-api-key": None}
    text, host = written(tmp_path, unit(words, secrets=secrets, secret_variables=["HF_TOKEN"]))
    assert "        # --admin-api-key is not copied" in text
    assert "        # 1 secret variable left out" in text
    assert host.services["kimi"].launch == inventory.Launch()


def test_what_the_template_would_lose_is_a_drop_in(tmp_path: Path) -> None:
    found = unit(
        environment_files=["-/etc/kimi.env"],
        settings={"WorkingDirectory": "/srv", "User": "serve", "TimeoutStopSec": "5min"},
        environment={"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1", "B": "a: #b"},
        via="/srv/run.sh",
    )
    text, host = written(tmp_path, found)
    launch = host.services["kimi"].launch
    kept = "[Service]\nEnvironmentFile=-/etc/kimi.env\nWorkingDirectory=/srv\n"
    assert launch.drop_ins == {"10-kept.conf": kept}
    assert launch.environment == {"HF_HUB_OFFLINE": "1", "B": "a: #b"}
    assert (launch.user, launch.stop_timeout) == ("serve", 300.0)
    assert "(/srv/run.sh starts it now)" in text


@pytest.mark.parametrize(
    ("given", "seconds"), [("300", 300.0), ("2min 30s", 150.0), ("90", 90.0), ("infinity", 90.0)]
)
def test_the_stop_timeout_as_systemd_takes_it(given: str, seconds: float, tmp_path: Path) -> None:
    _, host = written(tmp_path, unit(settings={"TimeoutStopSec": given}))
    assert host.services["kimi"].launch.stop_timeout == seconds


def test_sets_for_the_release_are_named_and_the_one_in_place_is_set(tmp_path: Path) -> None:
    sets = [
        ("ddtree", "1.1.0", "sglang", "0.5.12.post1"),
        ("other", "1.0.0", "sglang", "0.5.11"),
    ]
    text, host = written(tmp_path, unit(), sets=sets)
    assert host.services["kimi"].patch_set is None
    assert "# patch_set: ddtree # 1.1.0 is for this release" in text
    assert "other" not in text
    _, host = written(tmp_path, unit(set={"name": "ddtree", "version": "1.0.0"}), sets=sets)
    assert host.services["kimi"].patch_set == "ddtree"


def test_several_units_are_several_services(tmp_path: Path) -> None:
    second = unit(Id="kimi@two\\x2dthree.service", ActiveState="inactive", arguments=None)
    text, host = written(tmp_path, unit(), second)
    assert set(host.services) == {"kimi", "kimi@two-x2dthree"}
    assert host.services["kimi@two-x2dthree"].unit == "kimi@two\\x2dthree.service"
    assert "# inactive when it was seen" in text
    assert "As the running server has them" in text


WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORD), value=WORD, served=WORD.filter(bool), why=WORD)
def test_whatever_a_unit_says_is_read_back(
    words: list[str], value: str, served: str, why: str, tmp_path: Path
) -> None:
    given_words = [f"--served-model-name={served}", *(f"--x={word}" for word in words)]
    found = unit(
        [*given_words, f"--model-path={why}"],
        model="/m",
        environment={"NAME": value},
        install={"fault": {"message": why}},
    )
    _, host = written(tmp_path, found)
    service = host.services["kimi"]
    assert service.launch.args == tuple(f"--x={word}" for word in words)
    assert service.launch.environment == {"NAME": value}
    assert service.model.served_name == served


def test_a_fork_and_an_editable_install(tmp_path: Path) -> None:
    text, host = written(
        tmp_path, unit(distribution="sglang-fork", install=INSTALL | {"editable": True})
    )
    assert host.services["kimi"].distribution == "sglang-fork"
    assert "editable" in text


def test_a_model_of_the_hub_is_its_copy_on_the_host(tmp_path: Path) -> None:
    words = ["--model-path", "org/name", "--speculative-algorithm=EAGLE"]
    text, host = written(tmp_path, unit(words, model="/hub/models--org--name/snapshots/1"))
    model = host.services["kimi"].model
    assert (model.path, model.served_name) == ("/hub/models--org--name/snapshots/1", "org/name")
    assert "# org/name, as the host has it now" in text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"python": None}, "its Python could not be told"),
        ({"model": None}, "its model /models/kimi is neither"),
        ({"model": None, "effective": ["--model-path", "$M"]}, "its model could not be told"),
        ({"model": None, "effective": ["--config", "x.yaml"]}, "in the file of --config"),
        ({"effective": [*WORDS, "--port", "$PORT"]}, "its port is '$PORT'"),
    ],
)
def test_what_cannot_be_told_is_left_out(changes: dict[str, Any], why: str) -> None:
    found = describe(facts(unit(**changes)), "ct200", SSH)
    assert found.services == {}
    assert found.text == ""
    assert why in found.left_out["kimi.service"]


def test_what_is_left_out_stands_in_the_file() -> None:
    shown = facts(unit(), unclear=["odd.service"], containers=["box.service"], user_units=["/u"])
    found = describe(shown, "ct200", SSH)
    assert set(found.left_out) == {"odd.service", "box.service", "/u"}
    assert "    # Not here: box.service: it runs SGLang in a container" in found.text
    assert "odd.service" not in found.text


# -- arguments -------------------------------------------------------------------------------


def test_options_and_their_values() -> None:
    words = ["--a=1=2", "--bs", "1", "2", "--flag", "--low", "-1", "--float", "-.5", "-x"]
    assert groups(words) == [
        *(("--a", "1=2"), ("--bs", "1", "2"), ("--flag",), ("--low", "-1"), ("--float", "-.5")),
        ("-x",),
    ]
    assert rest([*words, "--model", "/m", "--port", "1", "--key", "x"], {"--key"}) == [
        *("--a=1=2", "--bs", "1", "2", "--flag", "--low=-1", "--float=-.5", "-x")
    ]


def test_the_last_value_counts() -> None:
    assert value(["--port", "1", "--port=2"], "--port") == "2"
    assert value(["--port"], "--port") is None
