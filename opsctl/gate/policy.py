"""Policies: what a new version must show to be kept, as data."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from opsctl import yamlmodel, yamltext
from opsctl.errors import UsageError
from opsctl.gate.model import GateCheck, Outcome, Phase
from opsctl.inventory.models import Duration
from opsctl.smoke import CHECKS, Level
from opsctl.text import did_you_mean

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
}
_CONDITION: Final = re.compile(r"(<=|>=|==|<|>)\s*(-?[0-9]+(?:\.[0-9]+)?)")

_PHASES: Final[Mapping[str, Phase]] = {
    "load": "deploy", "smoke": "smoke", "exam": "smoke", "soak": "soak",
}  # fmt: skip
_BEFORE: Final = "to the version before"

# Every metric that a rule may name, and what it is. Ratios are of the new version to the one
# before, under the same soak on the same machine.
METRICS: Final[Mapping[str, str]] = {
    "load.seconds": "the start until it was ready, seconds",
    "load.budget_share": "the same as a share of the load budget",
    "smoke.accept_len": "tokens a verify step of the smoke request",
    "exam.accept_len": "tokens a verify step over the prompts, one at a time",
    "exam.wrong": "answers that the baseline calls wrong",
    "exam.near_tie_share": "share of the answers that differ at a near tie",
    "soak.requests": "requests of the soak",
    "soak.error_rate": "share of them without an answer",
    "soak.wrong": "answers of the soak that the baseline calls wrong",
    "soak.accept_len": "tokens a verify step over the soak's answers",
    "soak.accept_len_ratio": _BEFORE,
    "soak.throughput": "tokens a second over all requests",
    "soak.throughput_ratio": _BEFORE,
    "soak.latency_p50": "of whole answers, seconds",
    "soak.latency_p99": "of whole answers, seconds",
    "soak.latency_p99_ratio": _BEFORE,
    "soak.first_token_p50": "from sending to the first piece, seconds",
    "soak.first_token_p99": "from sending to the first piece, seconds",
}


def _condition(text: str) -> str:
    if not _CONDITION.fullmatch(text.strip()):
        raise ValueError("expected an operator and a number, such as '>= 0.9'")
    return text.strip()


def _metric(name: str) -> str:
    if name not in METRICS:
        raise ValueError(f"there is no metric {name!r}{did_you_mean(name, METRICS)}")
    return name


Condition = Annotated[str, AfterValidator(_condition)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Rule(_Model):
    """See the head of `policies/default.yaml`."""

    metric: Annotated[str, AfterValidator(_metric)]
    passes: Condition | None = Field(default=None, alias="pass")
    fails: Condition | None = Field(default=None, alias="fail")
    missing: Literal["inconclusive", "pass", "fail"] = "inconclusive"

    def judge(self, value: float | None) -> tuple[Outcome, str]:
        """The outcome, and why in words."""
        if value is None or not math.isfinite(value):
            outcome: Outcome = "skipped" if self.missing == "pass" else self.missing
            return outcome, "could not be measured"
        shown = f"{value:.4g}"
        if self.fails is not None and _holds(value, self.fails):
            return "fail", f"{shown}, which is {self.fails}"
        if self.passes is None or _holds(value, self.passes):
            return "pass", shown if self.passes is None else f"{shown}, which is {self.passes}"
        return "inconclusive", f"{shown}, neither {self.passes} nor {self.fails or 'a failure'}"

    @model_validator(mode="after")
    def _some_condition(self) -> Rule:
        if self.passes is None and self.fails is None:
            raise ValueError("give 'pass', 'fail' or both: without either it always passes")
        return self

    @property
    def text(self) -> str:
        """As the policy has it."""
        parts = [f"fail {self.fails}"] if self.fails else []
        parts += [f"pass {self.passes}"] if self.passes else []
        return f"{self.metric}: {', '.join(parts)}"


def _holds(value: float, condition: str) -> bool:
    found = _CONDITION.fullmatch(condition)
    assert found is not None
    return _OPERATORS[found[1]](value, float(found[2]))


def _check_name(name: str) -> str:
    if name not in CHECKS:
        raise ValueError(f"there is no check {name!r}{did_you_mean(name, CHECKS)}")
    return name


CheckName = Annotated[str, AfterValidator(_check_name)]


class SoakPlan(_Model):
    """How the soak loads the server; `seconds` 0 leaves it out."""

    seconds: Annotated[float, Field(ge=0, le=24 * 3600)] = 30.0
    at_once: Annotated[int, Field(ge=1, le=512)] = 4
    seed: int = 20261130
    before: bool = True


class Policy(_Model):
    """A policy file."""

    version: Literal[1]
    name: str
    level: Level = "standard"
    baseline: Literal["required", "optional"] = "optional"
    soak: SoakPlan = SoakPlan()
    checks: dict[CheckName, Literal["fail", "warn", "ignore"]] = Field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    on_inconclusive: Literal["keep", "restore"] = "keep"
    timeout: Duration | None = None  # of a request of the soak; None for the inventory's

    def judge(self, metrics: Mapping[str, float | None]) -> list[GateCheck]:
        """A check a rule."""
        return [_check(rule, metrics.get(rule.metric)) for rule in self.rules]


def _check(rule: Rule, value: float | None) -> GateCheck:
    outcome, reason = rule.judge(value)
    what = METRICS[rule.metric]
    return GateCheck(
        phase=_PHASES[rule.metric.partition(".")[0]] if what != _BEFORE else "compare",
        name=rule.metric,
        outcome=outcome,
        reason=f"{what}: {reason}",
        policy=rule.text,
        evidence={"value": value},
    )


def text_of(path: Path | None) -> str:
    """The text of a policy, or of the one that comes with opsctl. Raises as `read` does."""
    if path is not None:
        read(path)
        return path.read_text(encoding="utf-8")
    bundled = resources.files("opsctl.gate").joinpath("policies", "default.yaml")
    return bundled.read_text(encoding="utf-8")


def read(path: Path | None) -> Policy:
    """A policy file, or without one the default.

    Raises:
        UsageError: it cannot be read, or is no policy; the message names the key.
    """
    if path is None:
        return Policy.model_validate(yamltext.load(text_of(None)))
    document = yamlmodel.read(path, _invalid)
    return yamlmodel.model(document, Policy, _invalid, remedy="correct the key")


def _invalid(message: str, remedy: str) -> UsageError:
    start = "opsctl gate --show-policy prints one to start from"
    return UsageError(f"the policy {message}", remedy=f"{remedy}; {start}")
