"""playbooks/*.yaml: which steps, in which order, and what a failure leads to."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsctl import yamltext
from opsctl.errors import UsageError


class Playbook(BaseModel):
    """`on_failure: restore` puts back the generation that was there; `report` only says so."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1]
    name: str
    summary: str
    steps: tuple[str, ...] = Field(min_length=1)
    on_failure: Literal["restore", "report"]


def load(path: Path, known: frozenset[str]) -> Playbook:
    """Read one playbook; `known` are the steps that there are.

    Raises:
        UsageError: no such file, not a playbook, or a step that does not exist.
    """
    try:
        raw = yamltext.load(path.read_text(encoding="utf-8"))
        playbook = Playbook.model_validate(raw)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        detail = (
            "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            if isinstance(error, ValidationError)
            else str(error)
        )
        raise UsageError(
            f"{path}: not a playbook: {detail}", remedy="see docs/architecture.md, Playbooks"
        ) from None
    unknown = [step for step in playbook.steps if step not in known]
    if unknown:
        raise UsageError(
            f"{path}: steps: there is no step {unknown[0]!r}",
            remedy=f"the steps are {', '.join(sorted(known))}",
        )
    return playbook
