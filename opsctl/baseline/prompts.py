"""The prompts that answers are compared on: data, each with its text's hash."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from opsctl import yamlmodel
from opsctl.errors import UsageError
from opsctl.yamltext import load

Kind = Literal["code", "maths", "prose", "chat", "language", "long", "short", "words"]
# Characters a token of English, between which tokenizers lie: so many make a text long enough, and
# so few tell whether it is too long.
_MOST, _LEAST = 5, 3
# Characters of a file: a prompt may fill a long context.
_LONGEST = 16 << 20


_FORM = "opsctl/baseline/prompts.yaml in the repository shows the form"


class Prompt(BaseModel):
    """One prompt. See the head of `prompts.yaml` for its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    kind: Kind
    text: Annotated[str, Field(min_length=1)]
    tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    answer: str = ""
    long: bool = False
    quick: bool = False

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    def longer_than(self, chunk: int) -> Prompt:
        """A long prompt's text repeated, numbered, to more than `chunk` tokens; others as
        they are."""
        if not self.long:
            return self
        lines = chunk * _MOST // len(self.text) + 1
        text = "".join(f"{number}. {self.text}" for number in range(1, lines + 1))
        return self.model_copy(update={"text": text, "long": False})


class PromptSet(BaseModel):
    """`prompts` are asked at each further level, `deep` beside them at the deep one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1]
    prompts: Annotated[tuple[Prompt, ...], Field(min_length=1)]
    deep: tuple[Prompt, ...] = ()


def for_server(prompts: Iterable[Prompt], chunk: int, context: int | None) -> tuple[Prompt, ...]:
    """Long ones longer than a prefill chunk, without those that a context of so many tokens may
    not hold."""
    grown = [prompt.longer_than(chunk) for prompt in prompts]
    return tuple(
        prompt
        for prompt in grown
        if context is None or len(prompt.text) // _LEAST + prompt.tokens <= context
    )


def prompts_hash(prompts: Iterable[Prompt]) -> str:
    """The same for the same texts and lengths, in the same order."""
    text = " ".join(f"{prompt.sha256}:{prompt.tokens}" for prompt in prompts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def bundled() -> PromptSet:
    """The set that comes with opsctl."""
    text = resources.files("opsctl.baseline").joinpath("prompts.yaml").read_text(encoding="utf-8")
    return PromptSet.model_validate(load(text))


def read(path: Path) -> PromptSet:
    """A set of one's own, in the form of `prompts.yaml`.

    Raises:
        UsageError: it cannot be read, or is not of that form.
    """
    document = yamlmodel.read(path, _invalid, _LONGEST)
    found = yamlmodel.model(document, PromptSet, _invalid, remedy=_FORM)
    ids = [prompt.id for prompt in (*found.prompts, *found.deep)]
    twice = next((each for each in ids if ids.count(each) > 1), None)
    if twice is not None:
        raise _invalid(f"{path}: {twice} stands twice", "rename one")
    return found


def _invalid(message: str, remedy: str) -> UsageError:
    return UsageError(f"the prompts in {message}", remedy=remedy)
