"""Secrets by reference, and the base of everything that the inventory holds."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, model_validator


class Part(BaseModel):
    """Frozen once read; a key that is not known is a fault."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SecretRef(Part):
    """A secret by reference: an environment variable's name or a file's path, never the value."""

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _one_source(self) -> SecretRef:
        if (self.env is None) == (self.file is None):
            raise ValueError("give exactly one of 'env' and 'file'")
        return self

    def read(self) -> str:
        """The secret itself.

        Raises:
            LookupError: the variable is unset or the file cannot be read; the message names
                the reference and never a value.
        """
        if self.env is not None:
            value = os.environ.get(self.env)
            if not value:
                raise LookupError(f"the environment variable {self.env} is not set")
            return value
        assert self.file is not None
        try:
            return self.file.expanduser().read_text(encoding="utf-8").strip()
        except OSError as error:
            raise LookupError(f"cannot read {self.file}: {error.strerror}") from None
        except UnicodeDecodeError:  # its own text would show a part of the secret
            raise LookupError(f"cannot read {self.file}: it is not UTF-8 text") from None
