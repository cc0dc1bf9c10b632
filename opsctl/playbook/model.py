"""A playbook: named steps with arguments and conditions, and what a failure leads to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from opsctl.playbook.spec import (
    CONDITIONS,
    IMPLIED,
    ON_FAILURE_ONLY,
    PROOFS,
    SPECS,
    STARTS,
    Arguments,
    StepSpec,
)
from opsctl.text import did_you_mean

# Each is held against all that come before it.
_MOST_STEPS: Final = 100


class Use(BaseModel):
    """One step of a playbook. In YAML its name alone, or a mapping.

    `when`: all of these hold, else the step is skipped; `unless`: none of them does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    step: str
    label: str = Field(default="", alias="name", pattern=r"^([a-z][a-z0-9_-]*)?$")
    given: dict[str, Any] = Field(default_factory=dict, alias="with")
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        return {"step": value} if isinstance(value, str) else value

    @field_validator("when", "unless", mode="before")
    @classmethod
    def _one_or_more(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value

    @field_validator("step")
    @classmethod
    def _known_step(cls, value: str) -> str:
        if value not in SPECS:
            raise _unknown("step", value, SPECS)
        return value

    @field_validator("when", "unless")
    @classmethod
    def _known_conditions(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if name not in CONDITIONS:
                raise _unknown("condition", name, CONDITIONS)
        return value

    @model_validator(mode="after")
    def _arguments_fit(self) -> Use:
        try:
            self.arguments  # noqa: B018 - it raises
        except ValidationError as error:
            fault = error.errors()[0]
            key = str(fault["loc"][0]) if fault["loc"] else ""
            known = self.spec.takes.model_fields
            text = fault["msg"].removeprefix("Value error, ")
            if fault["type"] == "extra_forbidden":
                takes = f"takes {', '.join(known)}" if known else "takes no arguments"
                text = f"{self.step} {takes}, not {key!r}{did_you_mean(key, known)}"
            raise PydanticCustomError(
                "argument", "{text}", {"text": text, "key": ("with", key)}
            ) from None
        return self

    @property
    def spec(self) -> StepSpec:
        return SPECS[self.step]

    @property
    def arguments(self) -> Arguments:
        return self.spec.takes.model_validate(self.given)

    @property
    def held(self) -> list[str]:
        """Its conditions, for a person."""
        found = [f"when {' and '.join(self.when)}"] if self.when else []
        return found + ([f"unless {' or '.join(self.unless)}"] if self.unless else [])

    @property
    def name(self) -> str:
        """What `--from` and the events call it."""
        return self.label or self.step


def use(step: str) -> Use:
    """A bare step."""
    return Use(step=step)


def _unknown(kind: str, name: str, known: Iterable[str]) -> PydanticCustomError:
    text = f"there is no {kind} {name!r}{did_you_mean(name, known)}"
    close = did_you_mean(name, known)
    if not close:
        text += f"; there are {', '.join(sorted(known))}"
    return PydanticCustomError("unknown_name", "{text}", {"text": text})


class Runbook(BaseModel):
    """What a playbook for the one on call says of itself. `incidents` are kinds of
    `opsctl diagnose` that lead here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    when: str = Field(min_length=1)
    does: str = Field(min_length=1)
    never: tuple[str, ...] = Field(min_length=1)
    incidents: tuple[str, ...] = ()


class Playbook(BaseModel):
    """`on_failure` is what follows when a step fails after something was changed: `restore`
    returns to what was there; an empty list only says so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1]
    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    summary: str = Field(min_length=1)
    runbook: Runbook | None = None
    steps: tuple[Use, ...] = Field(min_length=1, max_length=_MOST_STEPS)
    on_failure: tuple[Use, ...] = Field(default=(), max_length=_MOST_STEPS)

    @model_validator(mode="after")
    def _in_an_order_that_works(self) -> Playbook:
        seen: set[str] = set()
        for at, each in enumerate(self.steps):
            key = ("steps", at)
            if each.step in ON_FAILURE_ONLY:
                raise _order(key, f"{each.step} is for on_failure")
            _check_needs(each, self.steps[:at], key)
            if each.name in seen:
                text = f"there are two steps {each.name!r}; give one of them a name of its own"
                raise _order(key, text)
            seen.add(each.name)
        for at, each in enumerate(self.on_failure):
            key = ("on_failure", at)
            if each.step == "finish":
                raise _order(key, "finish is for steps")
            _check_needs(each, self.steps, key)
        return self

    @model_validator(mode="after")
    def _ends_whole(self) -> Playbook:
        """A service that it stops is started and proved, a guard called off, a swap undone."""
        last = {each.step: at for at, each in enumerate(self.steps)}
        start = last.get("start", -1)
        ends = max(last.get("record", -1), last.get("confirm", -1))
        change = max((last.get(step, -1) for step in STARTS), default=-1)
        if last.get("stop", -1) > start or last.get("swap", -1) > start:
            raise _order(("steps", change), "after stop and swap there has to be a start")
        for proof in sorted(PROOFS):
            if start > last.get(proof, -1):
                raise _order(("steps", start), f"after the last start there has to be a {proof}")
        if "guard" in last and ends < max(change, last["guard"]):
            text = "after the last change record or confirm has to call the guard off"
            raise _order(("steps", last["guard"]), text)
        if "swap" in last and not (self.restores and "confirm" in last):
            text = "swap needs confirm behind it, and restore in on_failure"
            raise _order(("steps", last["swap"]), text)
        return self

    @property
    def restores(self) -> bool:
        return any(each.step == "restore" for each in self.on_failure)

    def has(self, step: str) -> bool:
        return any(each.step == step for each in self.steps)

    def beginning_at(self, name: str) -> Beginning:
        """The steps from `name` on, and those before it that later ones stand on.

        Raises:
            ValueError: there is no such step, or one of the rest needs a step that is left out,
                whatever that finds which is not.
        """
        names = [each.name for each in self.steps]
        if name not in names:
            raise ValueError(
                f"{self.name} has no step {name!r}{did_you_mean(name, names)}; "
                f"it has {', '.join(names)}"
            )
        at = names.index(name)
        kept = [each for each in self.steps[:at] if each.spec.always]
        done: set[str] = set()
        lacking: list[tuple[Use, str]] = []
        for each in (*kept, *self.steps[at:]):
            group = each.spec.unmet(done)
            if group is not None:
                text = f"{each.name} needs {_either(group)}, which beginning at {name} leaves out"
                if IMPLIED.keys().isdisjoint(each.when):
                    raise ValueError(text)
                lacking.append((each, text))
            done.add(each.step)
        settling = [i for i, each in enumerate(kept, 1) if each.step in IMPLIED.values()]
        looks = max(settling, default=0)
        return Beginning((*kept[:looks],), (*kept[looks:], *self.steps[at:]), (*lacking,))

    def nearest_beginning(self, name: str, runs: Callable[[Use], bool] = lambda _: True) -> str:
        """The last step, up to its step `name`, at which it can begin; `runs` says whether one with
        conditions will run, as far as that is known."""
        names = [each.name for each in self.steps]
        for each in reversed(names[: names.index(name) + 1]):
            with contextlib.suppress(ValueError):
                if not any(runs(use) for use, _ in self.beginning_at(each).lacking):
                    return each
        return names[0]


@dataclass(frozen=True, slots=True)
class Beginning:
    """A playbook from one of its steps on: `looks`, then `rest`. Once the looks are done it is
    known whether the steps of `lacking` are to run, each of which needs one that is left out: with
    why it cannot."""

    looks: tuple[Use, ...]
    rest: tuple[Use, ...]
    lacking: tuple[tuple[Use, str], ...] = ()

    @property
    def steps(self) -> tuple[Use, ...]:
        return (*self.looks, *self.rest)


def _check_needs(each: Use, before: Sequence[Use], key: tuple[str, int]) -> None:
    """What it needs has to come before it, and to run whenever it does."""
    group = each.spec.unmet({use.step for use in before})
    if group is not None:
        raise _order(key, f"{each.step} needs {_either(group)} before it")
    proofless = max((at for at, use in enumerate(before) if use.step in STARTS), default=-1)
    counting = [use for at, use in enumerate(before) if at > proofless or use.step not in PROOFS]
    group = each.spec.unmet({use.step for use in counting if _runs_with(use, each)})
    if group is not None:
        text = f"{each.step} needs {_either(group)} before it, after the last start where it proves"
        raise _order(key, f"{text} one, and whenever {each.step} runs itself")


def _runs_with(use: Use, each: Use) -> bool:
    """Whether `use` runs whenever `each` does, as far as conditions tell."""
    implied = any(IMPLIED.get(name) == use.step for name in each.when)
    return implied or (set(use.when) <= set(each.when) and set(use.unless) <= set(each.unless))


def _order(key: Sequence[str | int], text: str) -> PydanticCustomError:
    return PydanticCustomError("order", "{text}", {"text": text, "key": tuple(key)})


def _either(group: Iterable[str]) -> str:
    return " or ".join(sorted(group))
