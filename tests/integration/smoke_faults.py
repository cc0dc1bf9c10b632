"""Faults of speculative decoding, each where such a bug would be, and what smoke says of them.

As a module: `FAULTS`, and `faulty` which makes a patch set of one. As a command it puts each of
them into the lab's real SGLang, asks `opsctl smoke`, and writes docs/smoke-faults.json and the
page docs/smoke-faults.md:

    python tests/integration/smoke_faults.py [--only NAME ...] [--starts N] [--correct N] \
        [--deep N] [--again]

A fault that the standard level passes is tried with the deep one. What docs/smoke-faults.json has
already is kept unless --again.
"""

from __future__ import annotations

import argparse
import difflib
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from opsctl import patchset, resources

if TYPE_CHECKING:
    from workbench import Bench

_ROOT: Final = Path(__file__).parents[2]
DATA: Final = _ROOT / "docs" / "smoke-faults.json"
PAGE: Final = _ROOT / "docs" / "smoke-faults.md"
_RELEASE: Final = ("ddtree", "sglang", "0.5.12.post1")
_INFO: Final = "srt/speculative/ddtree_info.py"
_TREE: Final = "srt/speculative/ddtree_tree.py"

# A kernel or a collective that never comes back, once two requests share a batch.
_STUCK: Final = (
    "        predicted = self._target_tokens(batch, logits_output.next_token_logits)\n",
    "        while len(batch.reqs) > 1:\n            __import__('time').sleep(1)\n",
)


@dataclass(frozen=True)
class Fault:
    """One fault. `edits` are, by file of the package: old text, new text, each once there.

    `kinds` are the names for it that a smoke test may give; the first is the best one.
    `accept_len` is the inventory's floor for the quick smoke of the deploy.
    """

    name: str
    what: str
    where: str
    edits: Mapping[str, tuple[str, str]]
    kinds: tuple[str, ...]


FAULTS: Final = (
    Fault(
        "mask-ancestor",
        "one bit of the tree mask is wrong: whether node 2 sees node 1",
        "ddtree_tree.ancestors",
        {
            _TREE: (
                "            seen[node] |= seen[parent]\n",
                "            seen[node] |= seen[parent]\n"
                "    if width > 2:\n        seen[2, 1] = ~seen[2, 1]\n",
            )
        },
        ("verify_divergence",),
    ),
    Fault(
        "mask-distant-ancestor",
        "one bit of the tree mask is wrong: whether node 3 sees node 1",
        "ddtree_tree.ancestors",
        {
            _TREE: (
                "            seen[node] |= seen[parent]\n",
                "            seen[node] |= seen[parent]\n"
                "    if width > 3:\n        seen[3, 1] = ~seen[3, 1]\n",
            )
        },
        ("verify_divergence",),
    ),
    Fault(
        "positions-off-by-one",
        "the verify forward's positions are one too large",
        "DDTreeVerifyInput.from_tree",
        {
            _INFO: (
                "positions=tree.positions.view(-1),",
                "positions=tree.positions.view(-1) + 1,",
            )
        },
        ("verify_divergence",),
    ),
    Fault(
        "kv-of-rejected",
        "the first rows' KV is kept instead of the accepted path's",
        "ddtree_info.split_rows",
        {
            _INFO: (
                "rows = path.astype(np.int64) +",
                "rows = np.arange(steps, dtype=np.int64)[None, :] +",
            )
        },
        ("verify_divergence",),
    ),
    Fault(
        "stale-padding",
        "a padded batch keeps the last replay's lengths and KV slots in its spare rows",
        "cuda_graph_runner.populate_from_forward_batch",
        {
            "srt/model_executor/cuda_graph_runner.py": (
                "            self.seq_lens.fill_(seq_len_fill_value)\n"
                "            self.out_cache_loc.zero_()\n",
                "",
            )
        },
        ("graph_divergence",),
    ),
    Fault(
        "drafter-never-matches",
        "the drafted token ids are one too large",
        "ddtree_marginals.draft_top_k",
        {
            "srt/speculative/ddtree_marginals.py": (
                "    return values - logsumexp, ids\n",
                "    ids = (ids + 1) % int(lm_head.shard_indices.num_org_elements)\n"
                "    return values - logsumexp, ids\n",
            )
        },
        ("zero_acceptance",),
    ),
    Fault(
        "accepts-everything",
        "the walk takes each node's first child, whatever the target says",
        "ddtree_tree._walk_plain",
        {
            _TREE: (
                "        wanted = predicted.gather(1, current)\n",
                "        children = tree.parents == current\n"
                "        first = children.to(torch.int32).argmax(dim=1, keepdim=True)\n"
                "        wanted = torch.where(\n"
                "            children.any(dim=1, keepdim=True),\n"
                "            tree.tokens.gather(1, first),\n"
                "            predicted.gather(1, current),\n"
                "        )\n",
            )
        },
        ("implausible_acceptance",),
    ),
    Fault(
        "crash-at-second-request",
        "the mask has room for one request",
        "DDTreeVerifyInput.prepare_for_tree_verify",
        {_INFO: ("size = mask_size(bs, ", "size = mask_size(1, ")},
        ("crash_at_concurrency",),
    ),
    Fault(
        "crash-on-shrinking",
        "the roots of the requests that ended stay in the batch",
        "DFlashDraftInput.filter_batch",
        {
            "srt/speculative/dflash_info.py": (
                "        self.bonus_tokens = self.bonus_tokens[new_indices]\n",
                "",
            )
        },
        ("crash_on_shrinking_batch",),
    ),
    Fault(
        "hang",
        "the verify of two requests never comes back; /health is as released and says so",
        "DDTreeVerifyInput.verify",
        {_INFO: (_STUCK[0], _STUCK[1] + _STUCK[0])},
        ("hang",),
    ),
    Fault(
        "lost-answer",
        "the answer of a request that ends beside others is never sent",
        "scheduler_output_processor_mixin.process_batch_result_decode",
        {
            "srt/managers/scheduler_output_processor_mixin.py": (
                "        self.stream_output(batch.reqs, batch.return_logprob)\n"
                "        self.token_to_kv_pool_allocator.free_group_end()\n\n"
                "        self.forward_ct_decode",
                "        alone = len(batch.reqs) == 1\n"
                "        told = [req for req in batch.reqs if alone or not req.finished()]\n"
                "        self.stream_output(told, batch.return_logprob)\n"
                "        self.token_to_kv_pool_allocator.free_group_end()\n\n"
                "        self.forward_ct_decode",
            )
        },
        ("hang",),
    ),
    Fault(
        "cache-garbage",
        "a hit in the prefix cache gives each token the KV slot of the one before it",
        "Req.init_next_round_input",
        {
            "srt/managers/schedule_batch.py": (
                "                match_result.device_indices,\n",
                # Another order alone would be no fault: attention does not depend on it.
                "                (lambda x: torch.cat([x[:1], x])[: len(x)])(\n"
                "                    match_result.device_indices\n"
                "                ),\n",
            )
        },
        ("cache_divergence",),
    ),
    Fault(
        "cached-answer-garbage",
        "the KV of a finished answer is kept in the prefix cache in another order",
        "RadixCache.cache_finished_req",
        {
            "srt/mem_cache/radix_cache.py": (
                "        values = kv_indices[:key_len].to(dtype=torch.int64, copy=True)\n",
                "        own = len(req.origin_input_ids)\n"
                "        kv_indices = torch.cat([kv_indices[:own], kv_indices[own:].flip(0)])\n"
                "        values = kv_indices[:key_len].to(dtype=torch.int64, copy=True)\n",
            )
        },
        ("cache_divergence",),
    ),
    Fault(
        "health-lies",
        "the verify of two requests never comes back, and /health says 200 without asking",
        "DDTreeVerifyInput.verify, http_server.health_generate",
        {
            _INFO: (_STUCK[0], _STUCK[1] + _STUCK[0]),
            "srt/entrypoints/http_server.py": (
                "        not envs.SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION.get()\n        and ",
                "        ",
            ),
        },
        ("false_healthy",),
    ),
    Fault(
        "nan-in-batches",
        "the target's logits are NaN where two requests share a batch",
        "DDTreeVerifyInput.verify",
        {
            _INFO: (
                _STUCK[0],
                "        if len(batch.reqs) > 1:\n"
                "            logits_output.next_token_logits.fill_(float('nan'))\n" + _STUCK[0],
            )
        },
        ("nan_output",),
    ),
)


def named(name: str) -> Fault:
    return next(fault for fault in FAULTS if fault.name == name)


def faulty(fault: Fault, folder: Path) -> Path:
    """A copy of the repository's patches below `folder`, whose ddtree set has `fault` on top, in
    a version of its own: in the set's own files in place, in the wheel's by a last patch."""
    root = folder / f"patches-{fault.name}"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(resources.bundled("patches"), root)
    found = patchset.find(root, *_RELEASE)
    wheel, _ = patchset.read_sources(
        patchset.fetch(found), "sglang", sorted({*found.paths, *fault.edits})
    )
    made = {path: change.after for path, change in patchset.apply(found, wheel).items()}
    parts: list[str] = []
    for path, (before, after) in fault.edits.items():
        data = made.get(path, wheel[path])
        assert data is not None, path
        text = data.decode()
        assert text.count(before) == 1, (fault.name, path, text.count(before))
        changed = text.replace(before, after)
        if path in found.new_files:
            (found.dir / "files" / path).write_text(changed, encoding="utf-8")
            continue
        parts += difflib.unified_diff(
            text.splitlines(keepends=True),
            changed.splitlines(keepends=True),
            f"a/{path}",
            f"b/{path}",
        )
    if parts:
        header = f"Description: {fault.what}\nAuthor: The tests\nForwarded: not-needed\n"
        patch = found.dir / "0099-fault.patch"
        patch.write_text(header + "Last-Update: 2026-11-29\n---\n" + "".join(parts), "utf-8")
        with (found.dir / "series").open("a", encoding="utf-8") as series:
            series.write(f"{patch.name}\n")
    manifest = found.dir / "patchset.yaml"
    content = yaml.safe_load(manifest.read_text(encoding="utf-8"))
    manifest.write_text(
        yaml.safe_dump(content | {"version": f"9.{FAULTS.index(fault)}.0"}), encoding="utf-8"
    )
    return root


class Results:
    """What docs/smoke-faults.json holds; each addition writes it, and the page. "correct" and
    "deep" are the standard and the deep level on correct servers."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {"faults": {}, "correct": {}, "deep": {}}
        if DATA.exists():
            self.data |= json.loads(DATA.read_text(encoding="utf-8"))

    def keep(self, told: str) -> None:
        import smoke_page  # it reads FAULTS

        DATA.write_text(json.dumps(self.data, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        PAGE.write_text(smoke_page.page(self.data), encoding="utf-8")
        sys.stdout.write(f"{told}\n")
        sys.stdout.flush()


def main() -> None:
    """Run what the results lack."""
    import smoke_trials as trials
    from workbench import Bench

    options, results = _options(), Results()
    faults = results.data["faults"]

    def wanted(name: str) -> bool:
        return not options.only or name in options.only

    with tempfile.TemporaryDirectory() as folder:
        bench, baseline = Bench(Path(folder)), options.baseline
        if baseline is None:
            baseline = Path(folder) / "baseline.json"
            trials.capture(bench, baseline)
        for fault in FAULTS:
            if wanted(fault.name) and (options.again or fault.name not in faults):
                patches = faulty(fault, Path(folder))
                found = trials.fault_trials(bench, patches, baseline, options.starts)
                faults[fault.name] = found
                kinds = [found[level]["kind"] for level in trials.LEVELS if level in found]
                results.keep(f"{fault.name}: {kinds}")
        for server in filter(wanted, trials.CORRECT):
            _correct(bench, baseline, server, results, options)


def _correct(
    bench: Bench, baseline: Path, server: str, results: Results, options: argparse.Namespace
) -> None:
    """The runs that the results lack of one correct server."""
    import smoke_trials as trials

    wanted = {"standard": ("correct", options.correct), "deep": ("deep", options.deep)}
    todo = []
    for level, (key, count) in wanted.items():
        done = [] if options.again else results.data[key].get(server, [])
        if len(done) < count:
            results.data[key][server] = done
            todo += [(level, done)] * (count - len(done))
    if todo:
        trials.start_correct(bench, server)
    for level, done in todo:
        done.append(trials.correct_trial(bench, level, baseline))
        told = f"{done[-1]['verdict']} in {done[-1]['seconds']} s"
        results.keep(f"{server}, {level}: {told}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="a fault or a correct server, by its name")
    parser.add_argument("--starts", type=int, default=1, help="starts of each faulty server")
    parser.add_argument("--correct", type=int, default=0, help="runs on each correct server")
    parser.add_argument("--deep", type=int, default=0, help="such runs of the deep level")
    parser.add_argument("--baseline", type=Path, help="one of the lab, instead of capturing it")
    parser.add_argument("--again", action="store_true", help="run what the JSON has, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
