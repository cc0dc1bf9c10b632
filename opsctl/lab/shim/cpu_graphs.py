"""SGLang's own CudaGraphRunner on a CPU, with a stand-in for ``torch.cuda.CUDAGraph``.

A graph's replay repeats the kernels of one forward pass on the memory that they had then. The
stand-in repeats the captured *call* on the same static tensors and copies its results into
the tensors that the capture gave out. Enabled by CPU_GRAPHS=1, without --disable-cuda-graph.

What it proves: SGLang's code around a graph is the real one, so a batch that does not fit the
graph's buffers fails here as on a GPU, with the same message from the same copy; and what a
step needs but does not write into the static tensors (positions, mask, slots) is missing here
too, as the captured call sees nothing else. What it does not prove: anything of the kernels,
their launch sizes, memory or speed. A Python branch on a tensor's value is taken anew at each
replay here, and would be frozen by a real graph.
"""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

logger = logging.getLogger(__name__)


def enabled() -> bool:
    return os.environ.get("CPU_GRAPHS") == "1"


class RepeatedCall:
    """Stands in for ``torch.cuda.CUDAGraph``."""

    def __init__(self) -> None:
        self._call: Callable[[], Any] | None = None
        self._output: Any = None

    def record(self, call: Callable[[], Any]) -> Any:
        self._call, self._output = call, call()
        return self._output

    def replay(self) -> None:
        assert self._call is not None, "replayed before it was captured"
        with torch.no_grad():
            _copy_into(self._output, self._call())


def _copy_into(static: Any, fresh: Any) -> None:
    """Give the tensors of a captured output their new values, in place."""
    for field in dataclasses.fields(static):
        mine, new = getattr(static, field.name), getattr(fresh, field.name)
        if isinstance(mine, torch.Tensor):
            mine.copy_(new)


class StaticMask:
    """The part of SGLang's Triton backend that serves graphs, for the lab's torch backend."""

    cuda_graph_custom_mask: torch.Tensor | None = None

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        rows = self.max_context_len + max_num_tokens // max_bs  # type: ignore[attr-defined]
        self.cuda_graph_custom_mask = torch.zeros(max_num_tokens * rows, dtype=torch.uint8)

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def init_forward_metadata_capture_cuda_graph(self, *arguments: Any) -> None:
        spec_info = arguments[-1]
        if spec_info is not None and spec_info.custom_mask is not None:
            self._take(spec_info.custom_mask)
            # What the captured call reads from now on.
            spec_info.custom_mask = self.cuda_graph_custom_mask

    def init_forward_metadata_replay_cuda_graph(self, *arguments: Any, **_: Any) -> None:
        spec_info = arguments[6]
        if spec_info is not None and spec_info.custom_mask is not None:
            self._take(spec_info.custom_mask)

    def _take(self, mask: torch.Tensor) -> None:
        static = self.cuda_graph_custom_mask
        assert static is not None, "no graph state"
        if mask.data_ptr() != static.data_ptr():
            static[: mask.numel()] = mask


@contextmanager
def _graph_capture(stream: Any = None) -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(stream=stream)


def register() -> None:
    """Let SGLang capture and replay graphs on the CPU."""
    from sglang.srt.model_executor import cuda_graph_runner, model_runner
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    def capture_graph(
        self: Any, graph: RepeatedCall, pool: Any, stream: Any, run_once_fn: Callable[[], Any]
    ) -> Any:
        return graph.record(run_once_fn)

    def init_device_graphs(self: Any) -> None:
        self.graph_runner, self.graph_mem_usage = None, 0
        if self.is_generation and not self.server_args.disable_cuda_graph:
            logger.info("Capture cuda graph begin (the lab's stand-in on the CPU).")
            self.graph_runner = cuda_graph_runner.CudaGraphRunner(self)
            logger.info("Capture cuda graph end.")

    torch.cuda.CUDAGraph = RepeatedCall  # type: ignore[assignment, misc]
    cuda_graph_runner.graph_capture = _graph_capture
    cuda_graph_runner.set_global_graph_memory_pool(0)
    cuda_graph_runner.CudaGraphRunner._capture_graph = capture_graph
    model_runner.ModelRunner.init_device_graphs = init_device_graphs
    ForwardMode.is_cpu_graph = ForwardMode.is_cuda_graph
