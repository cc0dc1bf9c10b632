"""patchset.yaml as frozen, typed values; a mistake in it names file, line and key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import yaml
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    field_validator,
    model_validator,
)

from opsctl import yamltext
from opsctl.errors import PatchError

MANIFEST = "patchset.yaml"


def _pep440(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("put the version in quotes: YAML reads 1.10 as the number 1.1")
    try:
        if value != value.strip():  # which `Version` itself takes
            raise InvalidVersion(value)
        Version(value)
    except InvalidVersion:
        raise ValueError(f"{value!r} is not a PEP 440 version such as 1.0.0") from None
    return value


def _no_control_characters(value: str) -> str:
    if not value.strip() or any(ord(character) < 32 for character in value.strip()):
        raise ValueError("expected one line of text")
    return value.strip()


# Names become parts of paths on the host and of a deploy's report.
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_Version = Annotated[str, BeforeValidator(_pep440)]
_Line = Annotated[str, AfterValidator(_no_control_characters)]


def _option(value: str) -> str:
    if not re.fullmatch(r"--[A-Za-z0-9][A-Za-z0-9-]*(=.+)?", value):
        raise ValueError(f"expected --option or --option=VALUE, not {value!r}")
    return value


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Option = Annotated[str, AfterValidator(_option)]
_Choices = Annotated[tuple[_Option, ...], BeforeValidator(_several), Field(min_length=1)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class WheelPin(_Model):
    """One wheel of the target, by its file name and its SHA-256 in lower-case hex."""

    filename: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @field_validator("filename")
    @classmethod
    def _is_a_wheel(cls, value: str) -> str:
        try:
            parse_wheel_filename(value)
        except (InvalidWheelFilename, InvalidVersion) as error:
            raise ValueError(str(error)) from None
        return value


class Target(_Model):
    """The one release that a set is written against, pinned by the hashes of its wheels."""

    distribution: _Name
    version: _Version
    package: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    wheels: tuple[WheelPin, ...]

    @model_validator(mode="after")
    def _wheels_are_of_this_release(self) -> Target:
        if not self.wheels:
            raise ValueError("wheels: pin at least one")
        for pin in self.wheels:
            name, version, _, _ = parse_wheel_filename(pin.filename)
            if name != canonicalize_name(self.distribution) or version != Version(self.version):
                raise ValueError(
                    f"the wheel {pin.filename} is not of {self.distribution} {self.version}"
                )
        return self


class Needs(_Model):
    """What a set needs of the unit's command line.

    Each entry is an option (`--enable-metrics`: given, with any value or none), an option
    with its value (`--speculative-algorithm=DFLASH`), or a list of such, of which one is
    enough. Values compare without regard to case: SGLang upper-cases its algorithm names.
    """

    arguments: tuple[_Choices, ...] = ()

    def unmet(self, argv: Sequence[str]) -> list[str]:
        """The entries that `argv` does not meet, as text for a person.

        Understands `--a=b` and `--a b`; of an option given twice the last counts, as in
        argparse. Abbreviated options are not recognised.
        """
        given = _options(argv)
        return [
            " or ".join(choices)
            for choices in self.arguments
            if not any(_is_met(choice, given) for choice in choices)
        ]


def _options(argv: Sequence[str]) -> dict[str, str | None]:
    given: dict[str, str | None] = {}
    for index, word in enumerate(argv):
        if not word.startswith("--"):
            continue
        option, equals, value = word.partition("=")
        following = argv[index + 1] if index + 1 < len(argv) else None
        if equals:
            given[option] = value
        else:
            takes = following is not None and not following.startswith("--")
            given[option] = following if takes else None
    return given


def _is_met(wanted: str, given: dict[str, str | None]) -> bool:
    option, equals, value = wanted.partition("=")
    if option not in given:
        return False
    return not equals or (given[option] or "").casefold() == value.casefold()


class Manifest(_Model):
    """The whole of patchset.yaml."""

    name: _Name
    version: _Version
    description: _Line
    target: Target = Field(alias="for")
    needs: Needs = Needs()
    restart: StrictBool = True


def read_manifest(path: Path) -> Manifest:
    """patchset.yaml at `path`.

    Raises:
        PatchError: it cannot be read, is not YAML, or a key is missing, unknown or wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PatchError(
            f"cannot read {path}: {error.strerror}",
            remedy="a patch set is a folder with patchset.yaml and series: see docs/patch-sets.md",
            code="patch_set_unreadable",
        ) from None
    except UnicodeDecodeError:
        raise _wrong(f"{path}: not UTF-8 text") from None
    try:
        node = yamltext.compose(text)
        data = yamltext.load(text)
    except yaml.YAMLError as error:
        raise _wrong(_yaml_message(path, error)) from None
    if not isinstance(data, dict):
        raise _wrong(f"{path}:1: expected a mapping with name, version, description and for")
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        raise _wrong("\n".join(_problems(path, node, error))) from None


def _wrong(message: str) -> PatchError:
    return PatchError(
        message,
        remedy="correct the file; docs/patch-sets.md describes every key",
        code="patch_set_invalid",
    )


def _yaml_message(path: Path, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "not valid YAML"
    return f"{path}:{mark.line + 1 if mark else 1}: {problem}"


def _problems(path: Path, node: yaml.Node | None, error: ValidationError) -> list[str]:
    found = []
    for item in error.errors(include_url=False):
        line, key = _locate(node, item["loc"])
        found.append(f"{path}:{line}: {key}: {item['msg'].removeprefix('Value error, ')}")
    return found


def _locate(node: yaml.Node | None, location: tuple[int | str, ...]) -> tuple[int, str]:
    """The line, counted from 1, and the dotted key of a pydantic error's location.

    Parts that are not in the document (a missing key, a union's branch) end the walk: the
    line is then that of the nearest thing that is.
    """
    line = node.start_mark.line + 1 if node else 1
    keys: list[str] = []
    for part in location:
        child: Any = None
        if isinstance(node, yaml.MappingNode):
            child = next((pair for pair in node.value if pair[0].value == str(part)), None)
            keys.append(str(part))
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            child = (node.value[part],) if part < len(node.value) else None
            keys.append(str(part))
        if child is None:
            break
        line, node = child[0].start_mark.line + 1, child[-1]
    return line, ".".join(keys) or "patchset.yaml"
