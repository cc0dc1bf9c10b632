"""The release data against the sources of the real wheels, and the grammar against the data."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import wheel_sources
from wheel_sources import Source

from opsctl.errors import Refused
from opsctl.sglang import lines as ln
from opsctl.sglang import parse
from opsctl.sglang.releases import RELEASES, Release, Text, lines_of, names, release_of

pytestmark = pytest.mark.wheel
NAME = re.compile(r"\{\w*\}")

# By placeholder: what is printed for it, and the field and value that it must arrive as.
PRINTED: dict[str, tuple[str, str, object]] = {
    "iteration": (" [104]", "", None),
    "running": ("3", "running", 3),
    "accept_len": ("3.42", "accept_len", 3.42),
    "accept_rate": ("0.35", "accept_rate", 0.35),
    "cuda_graph": ("True", "cuda_graph", True),
    "gen_throughput": ("212.02", "gen_throughput", 212.02),
    "queue": ("5", "queue", 5),
    "tokens": ("8123", "tokens", 8123),
    "usage": ("0.02", "usage", 0.02),
    "new_seqs": ("1", "new_seqs", 1),
    "new_tokens": ("158", "new_tokens", 158),
    "cached_tokens": ("7", "cached_tokens", 7),
    "elapsed": ("18.44", "elapsed_s", 18.44),
    "width": ("33", "tokens_per_request", 33),
    "type": ("KimiK25ForConditionalGeneration", "model_type", "KimiK25ForConditionalGeneration"),
    "call": ("ServerArgs(tp_size=8)", "values", {"tp_size": 8}),
}
KINDS: dict[str, type[ln.LogLine]] = {
    "ready": ln.ServerReady,
    "server_args": ln.ServerArgs,
    "shards": ln.WeightShards,
    "weights_begin": ln.LoadWeightBegin,
    "weights_end": ln.LoadWeightEnd,
    "distributed_begin": ln.DistributedBegin,
    "distributed_end": ln.DistributedEnd,
    "kv_cache": ln.KvCacheAllocated,
    "memory_pool_end": ln.MemoryPoolEnd,
    "graph_begin": ln.GraphCapture,
    "graph_end": ln.GraphCapture,
    "capturing": ln.CapturingBatches,
    "draft_ready": ln.DraftRunnerReady,
    "verify_completed": ln.VerifyCompleted,
    "decode": ln.DecodeBatch,
    "prefill": ln.PrefillBatch,
}
# tqdm puts these behind the texts of its bars.
BARS = {
    "shards": ":  67% Completed | 43/64 [05:00<02:00,  7.10s/it]",
    "capturing": ":  43%|####3     | 10/23 [00:01<00:01,  9.11it/s]",
}


@pytest.fixture(params=RELEASES, ids=lambda release: release.read)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    try:
        wheel_sources.wheel(found.read)
    except Refused as error:
        if error.code == "wheel_hash":
            raise
        pytest.skip(f"SGLang {found.read} cannot be had here: {error.message}")
    return found


def read(release: Release, file: str) -> Source:
    return wheel_sources.source(release.read, file)


def test_every_line_is_in_the_source(release: Release) -> None:
    parts = {part for forms in release.lines.values() for line in forms for part in line}
    assert len(parts) > 15
    missing = [
        part for part in parts if NAME.sub("{}", part.text) not in read(release, part.file).texts
    ]
    assert not missing


def test_every_endpoint_is_routed(release: Release) -> None:
    for routes in release.endpoints.values():
        for route in routes:
            assert route.text in read(release, route.file).routes, route


def test_meta_info_has_these_names_and_none_of_another_release(release: Release) -> None:
    written = read(release, release.meta_info_file).keys_set("meta_info")
    for what in RELEASES[0].meta_info:
        here = {name for name in names("meta_info", what) if name in written}
        assert here == set(release.meta_info.get(what, ())), what


def test_internal_state_and_gauges(release: Release) -> None:
    assert set(release.state.values()) <= read(release, release.state_file).keys_set("ret", "state")
    exported = read(release, release.gauges_file).keywords("name")
    assert set(release.gauges.values()) <= exported
    for what, name in RELEASES[0].gauges.items():
        assert (name in exported) == (what in release.gauges), name


def test_the_meaning_of_accept_rate(release: Release) -> None:
    """Its numerator and denominator, from the function that prints the line."""
    report = read(release, release.lines["decode"][0][0].file)
    function = "report_decode_stats"
    (total,) = report.assigned(function, "total_draft_tokens")
    *_, rate = report.assigned(function, "spec_accept_rate")
    width = report.assigned(function, total.rpartition(" * ")[2])[0]
    if release.accept_rate == "drafts":
        assert width.endswith("speculative_num_draft_tokens - 1")
        drafts = re.match(r"num_\w+_drafts", rate)
        assert drafts
        assert re.fullmatch(
            r"self\.spec_num_accept\w*_tokens - self\.spec_num_forward_ct"
            r"|self\.spec_num_correct_drafts",
            report.assigned(function, drafts[0])[-1],
        )
    else:
        assert " - 1" not in width
        assert rate.startswith("self.spec_num_accepted_tokens / total_draft_tokens")


def test_graph_labels(release: Release) -> None:
    report = read(release, release.lines["decode"][0][0].file)
    assert {text for text in report.texts if re.fullmatch(r"\w+ graph", text)} == set(
        release.graph_labels
    )


def rendered(release: Release, kind: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Every line of a kind with values put in, and the fields that must come out."""
    for label in release.graph_labels:
        for line in release.lines[kind]:
            fields: dict[str, object] = {}
            yield _joined(line, label, fields) + BARS.get(kind, ""), fields


def _joined(line: tuple[Text, ...], label: str, fields: dict[str, object]) -> str:
    def put(match: re.Match[str]) -> str:
        name = match[0][1:-1]
        if name == "pool":
            return "".join(_ended(NAME.sub(put, part.text)) for part in line[1:])
        if name == "graph_label":
            return label
        text, attribute, value = PRINTED.get(name, ("0", "", None))
        if attribute:
            fields[attribute] = value
        return text

    return NAME.sub(put, line[0].text)


def _ended(text: str) -> str:
    return text if text.endswith(", ") else text + ", "


def test_the_grammar_reads_every_line(release: Release) -> None:
    for kind in release.lines:
        for text, fields in rendered(release, kind):
            for prefix in ("", "[2026-01-31 10:20:30] ", "[2026-01-31 10:20:30 DP0 TP1] "):
                found = parse(prefix + text)
                assert type(found) is KINDS[kind], text
                assert {name: getattr(found, name) for name in fields} == fields, text
                assert isinstance(found, KINDS[kind])
                assert found.rank == ("DP0 TP1" if "DP0" in prefix else "")


def test_release_of() -> None:
    def of(version: str | None) -> str | None:
        found = release_of(version)
        return None if found is None else found.read

    assert of("0.5.12.post1") == of("0.5.12") == of("0.5.22") == "0.5.12.post1"
    assert of("0.5.11") == of("0.5.11rc1") == "0.5.11"
    assert of("0.5.23") == of("0.6.0") == of("1") == "0.5.23"
    assert of("0.5.10.post1") == of("0.4.4") == "0.5.10.post1"
    assert of(None) is of("odd") is of("") is None


def test_forms_and_names_stand_once() -> None:
    forms = [tuple(part.text for part in line) for line in lines_of("decode")]
    assert len(forms) == len(set(forms)) == 3
    assert names("endpoints", "server_info") == ("/server_info", "/get_server_info")
    assert names("meta_info", "accepted")[0] == "spec_num_correct_drafts"
