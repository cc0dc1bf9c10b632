"""The real server: text, graphs, sampling, refusals, and the incident with its cure.

A sample of what `end_to_end.py` does in full. CUDA graphs are the lab's stand-in, whose
docstring says what it proves.
"""

# mypy: ignore-errors
from __future__ import annotations

import os
import re
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import end_to_end
import patched
import pytest

INCIDENT = (
    "RuntimeError: The size of tensor a (8) must match the size of tensor b (33) "
    "at non-singleton dimension 0"
)
DRAFT = f"--speculative-draft-model-path={end_to_end.MODELS / 'dflash'}"
GRAPHS = ["--cuda-graph-max-bs=3", "--decode-log-interval=1"]
PORT = int(os.environ.get("DDTREE_PORT", "31688"))


def ddtree(budget):
    return ["--speculative-algorithm=DDTREE", DRAFT, f"--speculative-ddtree-budget={budget}"]


@pytest.fixture(scope="module", autouse=True)
def _graphs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CPU_GRAPHS", "1")
        yield


@pytest.fixture(scope="module")
def package():
    return Path(os.environ["DDTREE_PACKAGE"])


def test_ddtree_serves_the_plain_servers_text_on_graphs(package, tmp_path):
    prompts = end_to_end.make_prompts(6)
    with end_to_end.serving(package, PORT, tmp_path / "plain.log", GRAPHS) as server:
        plain = end_to_end.run(server, prompts, 32, [1])
    log = tmp_path / "ddtree.log"
    with end_to_end.serving(package, PORT, log, [*GRAPHS, *ddtree(32)]) as server:
        ours = end_to_end.run(server, prompts, 32, [1, 4])  # 4 is more than a graph holds
        check_sampling(server, prompts[0])
        check_refusals(server, prompts[0])
        check_metrics(server)
        assert server.used_tokens() == 0
    assert end_to_end.differing(ours, plain) == 0
    assert ours["accept_len"] > 1.3
    text = log.read_text(errors="replace")
    assert "cuda graph: True" in text
    assert "cuda graph: False" in text
    line = re.search(r"DDTREE metrics (.*)", text)[1]
    fields = dict(field.split("=") for field in line.split())
    assert fields["budget"] == "32"
    assert float(fields["nodes"]) == 32
    assert "Traceback" not in text


def check_sampling(server, prompt):
    """Requests at a temperature get varied text; a top-k of 1 is greedy."""
    answers = {
        tuple(server.generate(prompt, 16, temperature=1.5, top_p=0.95)["output_ids"])
        for _ in range(4)
    }
    assert len(answers) > 1
    greedy = server.generate(prompt, 16)["output_ids"]
    assert server.generate(prompt, 16, temperature=1.0, top_k=1)["output_ids"] == greedy


def check_refusals(server, prompt):
    for option in ({"frequency_penalty": 0.5}, {"repetition_penalty": 1.2}, {"min_new_tokens": 3}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.generate(prompt, 8, **option)
        assert refused.value.code == 400
        assert next(iter(option)) in refused.value.read().decode()


def check_metrics(server):
    meta = server.generate([5, 6, 7], 24)["meta_info"]
    # Every step proposes at most block - 1 = 7 tokens, whatever the budget.
    assert meta["spec_num_proposed_drafts"] == 7 * meta["spec_verify_ct"]
    histogram = meta["spec_correct_drafts_histogram"]
    assert sum(histogram) == meta["spec_verify_ct"]
    assert sum(n * count for n, count in enumerate(histogram)) == meta["spec_num_correct_drafts"]
    metrics = server.get("/metrics")
    rate = float(re.search(r"sglang:spec_accept_rate{[^}]*} (\S+)", metrics)[1])
    length = float(re.search(r"sglang:spec_accept_length{[^}]*} (\S+)", metrics)[1])
    assert rate == pytest.approx((length - 1) / 7)


def test_without_the_graph_patch_the_server_dies_of_the_incident(tmp_path):
    package = patched.write(tmp_path / "package", without=["0008"])
    log = tmp_path / "server.log"
    with (
        pytest.raises((RuntimeError, OSError)),
        end_to_end.serving(package, PORT, log, [*GRAPHS, *ddtree(32)]) as server,
    ):
        server.generate([5, 6, 7], 8)
    text = log.read_text(errors="replace")
    assert INCIDENT in text
    assert "populate_from_forward_batch" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*ddtree(0)], "--speculative-ddtree-budget must be in"),
        ([*ddtree(8), "--page-size=16"], "--page-size must be 1"),
        ([*ddtree(8), "--attention-backend=torch_native"], "needs a target attention backend"),
    ],
)
def test_the_server_refuses_before_it_loads_anything(package, tmp_path, arguments, message):
    log = tmp_path / "server.log"
    with (
        pytest.raises(RuntimeError, match="the server ended"),
        end_to_end.serving(package, PORT, log, arguments),
    ):
        pass
    assert message in log.read_text(errors="replace")
    assert "Load weight begin" not in log.read_text(errors="replace")


def test_two_ranks_agree_on_trees_and_samples(package, tmp_path, monkeypatch):
    """Tensor parallelism over gloo: each rank has half of the vocabulary and its own dice.

    Ranks that took different tokens would wait for each other for ever.
    """
    monkeypatch.setenv("CPU_GRAPHS", "0")
    prompts = end_to_end.make_prompts(4)
    arguments = [*ddtree(12), "--skip-server-warmup"]
    with end_to_end.serving(package, PORT, tmp_path / "one.log", arguments) as server:
        one = end_to_end.run(server, prompts, 16, [1])
    monkeypatch.setenv("SGLANG_CPU_OMP_THREADS_BIND", "0|0")
    with end_to_end.serving(
        package, PORT, tmp_path / "two.log", [*arguments, "--tp-size=2"]
    ) as server:
        two = end_to_end.run(server, prompts, 16, [2])
        with ThreadPoolExecutor(3) as pool:
            # Hot samples meet the end of text now and then.
            sampled = list(
                pool.map(
                    lambda p: server.generate(p, 24, temperature=1.2, ignore_eos=True), prompts
                )
            )
        assert [len(answer["output_ids"]) for answer in sampled] == [24] * 4
    assert two["outputs"][0] == one["outputs"][0]
    assert two["verifies"] == one["verifies"]


def test_a_tree_smaller_than_the_block_on_a_full_cache(package, tmp_path, monkeypatch):
    """The draft takes its block without evicting: what is reserved must hold it."""
    monkeypatch.setenv("CPU_GRAPHS", "0")
    log = tmp_path / "server.log"
    with end_to_end.serving(package, PORT, log, ddtree(1), pool=260) as server:
        result = end_to_end.run(server, end_to_end.make_prompts(10), 40, [3])
    assert result["tokens"] == 400
    assert result["used_tokens"] == 0
