"""A baseline: what a trusted server answered, and which server that was."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsctl.baseline.compare import Divergence, compare, tolerance
from opsctl.baseline.prompts import Prompt
from opsctl.errors import UsageError
from opsctl.sglang import GenerateAnswer
from opsctl.text import counted, first_fault

# Which arguments decide what is computed, and so whether answers can be compared at all.
_PRECISION = ("dtype", "quantization", "kv_cache_dtype")
_OVERRIDES = "json_model_override_args"
# Those that decide the answers or the speed, by SGLang's names, beside all of _SPECULATIVE. Nothing
# else is kept: others may hold credentials, such as hicache_storage_backend_extra_config.
_KEPT = frozenset(
    f"""
    model_path revision load_format trust_remote_code device random_seed {_OVERRIDES}
    {" ".join(_PRECISION)} quantization_param_path torchao_config context_length
    tp_size dp_size pp_size ep_size nnodes moe_dense_tp_size enable_dp_attention enable_dp_lm_head
    attention_backend decode_attention_backend prefill_attention_backend sampling_backend
    moe_runner_backend mamba_backend linear_attn_backend mamba_ssm_dtype
    page_size chunked_prefill_size max_prefill_tokens max_running_requests max_total_tokens
    mem_fraction_static schedule_policy schedule_conservativeness disable_radix_cache
    enable_hierarchical_cache cuda_graph_bs cuda_graph_max_bs disable_cuda_graph
    disable_cuda_graph_padding disable_overlap_schedule enable_mixed_chunk enable_torch_compile
    enable_two_batch_overlap enable_deterministic_inference num_continuous_decode_steps
    disable_custom_all_reduce enable_flashinfer_allreduce_fusion triton_attention_num_kv_splits
    """.split()
)
_SPECULATIVE = "speculative_"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Identity(_Model):
    """Which server: what must be the same (model and precision), and what is good to know.

    `files` are the SHA-256 of the model's small files and of its weights as `hostside.model`
    samples them; `precision` is the type that logits are computed in.
    """

    served_name: str
    model_path: str
    files: dict[str, str]
    precision: str
    quantization: str = ""
    kv_cache_dtype: str = ""
    version: str = ""
    algorithm: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)

    @property
    def _override(self) -> str:
        """What --json-model-override-args says, in one form; empty for nothing."""
        text = str(self.arguments.get(_OVERRIDES) or "")
        try:
            found = json.loads(text or "{}")
        except ValueError:
            return text
        return json.dumps(found, sort_keys=True) if found else ""

    def unlike(self, other: Identity) -> list[str]:
        """Why the answers of the two cannot be compared; empty if they can."""
        found = [
            f"{name} is {ours or 'none'} there and {theirs or 'none'} here"
            for name, ours, theirs in (
                ("the precision", self.precision, other.precision),
                ("the quantization", self.quantization, other.quantization),
                ("the type of the KV cache", self.kv_cache_dtype, other.kv_cache_dtype),
                ("the override of the model's configuration", self._override, other._override),
            )
            if ours != theirs
        ]
        if self.files != other.files:
            names = sorted(
                name
                for name in self.files.keys() | other.files.keys()
                if self.files.get(name) != other.files.get(name)
            )
            found.append(f"the model is another one ({', '.join(names)})")
        return found


class Answer(_Model):
    """Of one prompt, greedy. `top[i]` are the likeliest tokens at output token i."""

    prompt: str
    sha256: str
    prompt_tokens: int | None = None
    output_ids: tuple[int, ...]
    top: tuple[tuple[tuple[int, float], ...], ...] = ()
    text: str
    finish_reason: str

    @classmethod
    def of(cls, prompt: str, sha256: str, answer: GenerateAnswer) -> Answer:
        return cls(
            prompt=prompt,
            sha256=sha256,
            prompt_tokens=answer.prompt_tokens,
            output_ids=answer.output_ids,
            top=answer.top,
            text=answer.text,
            finish_reason=answer.finish_reason,
        )


class Baseline(_Model):
    """`reference` says what vouches for it: "plain", a server without speculation, or "trusted",
    a server that speculated and was taken at its word."""

    format: Literal[1] = 1
    created: float
    host: str
    service: str
    generation: int | None = None
    reference: Literal["plain", "trusted"]
    identity: Identity
    answers: Annotated[tuple[Answer, ...], Field(min_length=1)]

    @property
    def id(self) -> str:
        """The same for the same content."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        return f"baseline {self.id} ({self.reference}, {counted(len(self.answers), 'prompt')})"

    @property
    def near(self) -> float:
        """What still is a near tie, in nats."""
        return tolerance(self.identity.precision)

    def answer(self, sha256: str) -> Answer | None:
        """Of the prompt with that hash."""
        return next((each for each in self.answers if each.sha256 == sha256), None)

    def lacks(self, prompts: Iterable[Prompt]) -> list[str]:
        """The ids of those that it has no answer to."""
        known = {each.sha256 for each in self.answers}
        return [prompt.id for prompt in prompts if prompt.sha256 not in known]

    def judge(self, sha256: str, output_ids: tuple[int, ...], asked: int) -> Divergence | None:
        """An answer of which `asked` tokens were asked for; None without one to compare with."""
        known = self.answer(sha256)
        if known is None:
            return None
        # At the very limit a server's last step may reach beyond a stop, so nothing proves it.
        stopped = known.finish_reason == "stop" and asked > len(known.output_ids)
        expected = known.output_ids[:asked]
        return compare(expected, known.top, output_ids, self.near, stopped=stopped)

    def begun(self, sha256: str, count: int) -> tuple[int, ...]:
        """The first `count` tokens of the prompt's answer; empty without one."""
        known = self.answer(sha256)
        return known.output_ids[:count] if known else ()


def load(text: str, name: str) -> Baseline:
    """From its JSON; `name` is what a message calls it.

    Raises:
        UsageError: it is none.
    """
    try:
        return Baseline.model_validate_json(text)
    except ValidationError as error:
        raise UsageError(
            f"{name} is no baseline: {first_fault(error)}",
            remedy="opsctl baseline export writes one",
        ) from None


def identity(
    info: Mapping[str, Any], served_name: str, model: Mapping[str, Any] | None
) -> Identity:
    """From /server_info and what the host says of the model's folder (`hostside.model`).

    `dtype: auto` is what the model's configuration says, as in SGLang, but for float32, of which it
    makes float16.
    """
    dtype, quantization, cache = (str(info.get(name) or "") for name in _PRECISION)
    found = model or {}
    if dtype in {"auto", ""}:
        dtype = str(found.get("dtype") or "")
        dtype = "float16" if dtype == "float32" else dtype
    names = {"half": "float16", "float": "float32"}
    return Identity(
        served_name=served_name,
        model_path=str(info.get("model_path") or ""),
        files=dict(found.get("files") or {}),
        precision=names.get(dtype, dtype),
        quantization=quantization or str(found.get("quantization") or ""),
        kv_cache_dtype="" if cache == "auto" else cache,
        version=str(info.get("version") or ""),
        algorithm=str(info.get("speculative_algorithm") or ""),
        arguments={
            key: value
            for key, value in info.items()
            if (key in _KEPT or key.startswith(_SPECULATIVE)) and _simple(value)
        },
    )


def _simple(value: object) -> bool:
    """A scalar, or a list of such, as of batch sizes."""
    parts = value if isinstance(value, list) else [value]
    return all(isinstance(part, str | int | float) for part in parts)
