"""A finding in its surroundings: where the start stood, whose frames, what came before."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from opsctl.journal.findings import Finding
from opsctl.journal.patched import Patched
from opsctl.journal.traceback import Traceback
from opsctl.sglang.progress import Phase

PHASES: Final[dict[Phase, str]] = {
    "starting": "start",
    "loading weights": "load",
    "kv cache": "load",
    "graph capture": "capture",
    "draft model": "load",
    "warm-up": "warmup",
    "ready": "serve",
}
# Functions of SGLang's that run in one phase only, the innermost that is known deciding
# (model_executor/model_runner.py, cuda_graph_runner.py, entrypoints/http_server.py).
_FRAME_PHASES: Final = (
    (re.compile(r"^_?(?:capture\w*|init_\w*graphs?|warmup_\w*graph\w*|__init__graph)$"), "capture"),
    (re.compile(r"^_?(?:execute_server_)?(?:warmup|warm_up)\w*$"), "warmup"),
    (re.compile(r"^(?:load_model|load_weights|init_memory_pool|_?init_model_runner)$"), "load"),
    (re.compile(r"^(?:init_torch_distributed|prepare_server_args|from_cli_args)$"), "start"),
    (re.compile(r"^(?:event_loop\w*|run_batch|process_batch_result|handle_loop)$"), "serve"),
)
_ARGUMENTS_FILE: Final = re.compile(r"(?:server_args|arg_parser|argparse)\.py$")
_GRAPH_FILE: Final = re.compile(r"graph_runner\.py$")
# Faults of code, where others are of what it was given.
_CODE_FAULTS: Final = frozenset(
    {"AttributeError", "KeyError", "IndexError", "AssertionError", "UnboundLocalError"}
)
# Kernels that come in packages of their own.
_KERNEL_PACKAGES: Final = re.compile(r"(?:^|/)(?:flashinfer|deep_gemm|flash_attn|flash_mla)/")
_KERNEL_TEST: Final = re.compile(r"Test CUDA failure|NCCL (?:WARN|INFO)")
# Faults that a change to the verify path brings.
_PATCHABLE: Final = frozenset(
    {"python_error", "illegal_memory_access", "device_side_assert", "tensor_size_mismatch"}
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else the input says."""

    traces: Sequence[Traceback]
    patched: Patched
    ready_at: int  # lines; -1 if there is none
    decoded_at: int  # the last decode line
    kinds: frozenset[str]
    capturing: bool  # a capture is said to have failed

    def trace_of(self, line: int) -> Traceback | None:
        covering = [trace for trace in self.traces if trace.covers(line)]
        return covering[-1] if covering else None


def phase_of_frames(trace: Traceback) -> str:
    """The phase that a traceback's functions belong to, empty if none is known."""
    for file, function in reversed(trace.frames):
        for pattern, phase in _FRAME_PHASES:
            if pattern.match(function):
                return phase
        if function == "__init__" and _GRAPH_FILE.search(file):
            return "capture"
        if _ARGUMENTS_FILE.search(file):
            return "start"
    imports = bool(trace.frames) and trace.frames[-1][1] == "<module>"
    return "start" if imports else ""


def refined(found: Finding, around: Surroundings) -> Finding:
    """`found` with the phase and action that its surroundings give."""
    trace = around.trace_of(found.line)
    if not found.phase_known:
        phase = phase_of_frames(trace) if trace is not None else ""
        if not phase and around.capturing:
            phase = "capture"
        found = replace(found, phase=phase or found.phase)
    return replace(found, action=_action(found, trace, around))


def _action(found: Finding, trace: Traceback | None, around: Surroundings) -> str:
    if found.kind in _PATCHABLE and trace is not None and around.patched.touches(trace):
        return "rollback_patch"
    if found.kind == "graph_capture_failure" and "peer_rank_died" in around.kinds:
        return "investigate"
    if found.kind == "python_error" and _code_fault(found, trace):
        return "upgrade"
    if found.kind == "illegal_memory_access":
        return _action_on_illegal_access(found, trace, around)
    return found.action


def _action_on_illegal_access(found: Finding, trace: Traceback | None, around: Surroundings) -> str:
    if around.decoded_at < around.ready_at < found.line:
        return "rollback_patch"  # the first work of this start: what is new is at fault
    frames = trace.frames if trace is not None else []
    foreign = bool(frames) and _KERNEL_PACKAGES.search(frames[-1][0]) is not None
    return "upgrade" if foreign or _KERNEL_TEST.search(found.text) else found.action


def _code_fault(found: Finding, trace: Traceback | None) -> bool:
    if trace is not None and trace.exception:
        return trace.exception_name in _CODE_FAULTS
    return any(f"{name}:" in found.text for name in _CODE_FAULTS)
