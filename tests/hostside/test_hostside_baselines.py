"""Baselines in the state folder, and which model a folder holds."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from opsctl.hostside import baselines, model
from opsctl.hostside.errors import HostFault
from opsctl.hostside.state import State

FIRST, SECOND = "0123456789ab", "ba9876543210"


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(str(tmp_path), "serve")


def test_kept_private_and_listed_by_age(state: State) -> None:
    assert baselines.listed(state) == []
    for name in (FIRST, SECOND):
        path = baselines.write(state, name, f'{{"id": "{name}"}}')["path"]
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    os.utime(state.path("baselines", FIRST + ".json"), (1, 1))
    (Path(state.path("baselines")) / "notes.txt").write_text("not one")
    assert baselines.listed(state) == [SECOND, FIRST]
    assert json.loads(baselines.read(state, FIRST)) == {"id": FIRST}
    baselines.remove(state, SECOND)
    assert baselines.listed(state) == [FIRST]


@pytest.mark.parametrize("name", ["", "nothing", "../current", "0123456789AB", f"{FIRST}\n"])
def test_no_such_baseline(state: State, name: str) -> None:
    for act in (baselines.read, baselines.remove):
        with pytest.raises(HostFault) as caught:
            act(state, name)
        assert caught.value.code == "no_such_baseline"
    if name:
        with pytest.raises(HostFault):
            baselines.write(state, name, "{}")
    assert not Path(state.root, "..", "current").exists()


def folder(path: Path, config: dict[str, Any], **files: bytes) -> dict[str, Any]:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (path / name.replace("__", ".")).write_bytes(content)
    return model.facts(str(path))


def test_which_model(tmp_path: Path) -> None:
    config = {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "gptq"}}
    first = folder(tmp_path / "a", config, tokenizer__json=b"{}", model__safetensors=b"12345")
    assert (first["dtype"], first["quantization"]) == ("bfloat16", "gptq")
    assert set(first["files"]) == {"config.json", "tokenizer.json", "weights"}
    same = folder(tmp_path / "b", config, tokenizer__json=b"{}", model__safetensors=b"12345")
    assert same == first
    tuned = folder(tmp_path / "b", config, model__safetensors=b"12355")
    assert tuned["files"]["weights"] != first["files"]["weights"]
    larger = folder(tmp_path / "b", config, model__safetensors=b"543210")
    assert larger["files"]["weights"] != first["files"]["weights"]
    other = folder(tmp_path / "a", config, tokenizer__json=b"{ }")
    assert other["files"]["tokenizer.json"] != first["files"]["tokenizer.json"]


def test_weights_are_sampled(tmp_path: Path) -> None:
    content = bytearray(4 << 20)
    seen = []
    for place in (None, 0, 70_000, len(content) // 3, len(content) - 1):
        content[:] = bytes(len(content))
        if place is not None:
            content[place] = 1
        found = folder(tmp_path / "a", {}, model__safetensors=bytes(content))
        seen.append(found["files"]["weights"])
    assert seen[2] == seen[0], "between two pieces"
    assert len({seen[0], seen[1], seen[3], seen[4]}) == 4


def test_odd_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    (tmp_path / "tokenizer.json").symlink_to("nowhere")
    before = model.facts(str(tmp_path))
    assert before == {"files": {}, "dtype": "", "quantization": ""}
    (tmp_path / "model.safetensors").symlink_to("nowhere")
    (tmp_path / "more.bin").mkdir()
    os.mkfifo(tmp_path / "pipe.pt")
    assert set(model.facts(str(tmp_path))["files"]) == {"weights"}


@pytest.mark.parametrize("odd", [["gptq"], "gptq", 8, None])
def test_an_odd_quantization(tmp_path: Path, odd: Any) -> None:
    found = folder(tmp_path, {"quantization_config": odd, "text_config": odd, "dtype": "half"})
    assert (found["dtype"], found["quantization"]) == ("half", "")


def test_a_model_within_a_model(tmp_path: Path) -> None:
    inner = {"dtype": "bfloat16", "quantization_config": {"quant_method": "compressed-tensors"}}
    found = folder(tmp_path / "a", {"text_config": inner})
    assert (found["dtype"], found["quantization"]) == ("bfloat16", "compressed-tensors")


@pytest.mark.parametrize("config", ["[1]", "{half", "", "[" * 100_000])
def test_a_config_that_is_none(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    found = model.facts(str(tmp_path))
    assert (found["dtype"], found["quantization"]) == ("", "")


def test_no_folder(tmp_path: Path) -> None:
    assert model.facts(str(tmp_path / "none")) == {}
    assert model.facts("org/model-of-a-hub") == {}
