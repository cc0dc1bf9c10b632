"""Unit files rendered from `unit-templates/`, with systemd's quoting done by filters.

Sources: systemd.syntax(7) for quoting, systemd.unit(5) for specifiers, systemd.service(5)
("Command lines") for ``$`` in arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from opsctl.errors import UsageError
from opsctl.hostside import unitfiles
from opsctl.inventory.models import Service

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./$-]+")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRESTART = Path(__file__).with_name("prestart.py")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def specifiers(value: object) -> str:
    """`value` with ``%`` doubled, for settings that expand specifiers but take no quotes.

    Raises:
        ValueError: a control character, which would end the setting; a last backslash, which
            would make the next line a part of it; outer white space, which would be lost.
    """
    text = str(value)
    if not text.isprintable():
        raise ValueError(f"{value!r} holds a control character")
    if text != text.strip() or text.endswith("\\"):
        raise ValueError(f"{value!r} ends in what a setting's line loses or goes on after")
    return text.replace("%", "%%")


def quoted(value: object) -> str:
    """`value` as one word of a systemd setting such as ``Environment=``.

    Raises:
        ValueError: a control character that systemd cannot hold.
    """
    text = str(value).replace("%", "%%")
    if any(ord(character) < 32 and character not in _ESCAPES for character in text):
        raise ValueError(f"{value!r} holds a control character, which a unit file cannot")
    if _PLAIN.fullmatch(text):
        return text
    return '"' + "".join(_ESCAPES.get(character, character) for character in text) + '"'


def argument(value: object) -> str:
    """`value` as one argument of ``ExecStart=``, where ``$`` would expand a variable."""
    return quoted(str(value).replace("$", "$$"))


def assignment(value: object, name: str) -> str:
    """``name=value`` as one word of ``Environment=``.

    Raises:
        ValueError: systemd would ignore a variable of this name.
    """
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} is not a name for an environment variable")
    return quoted(f"{name}={value}")


def seconds(value: float) -> str:
    """A duration in seconds as systemd reads it, to the millisecond."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def identifier(unit: str) -> str:
    """The journal's name for a unit: the unit's own name less its suffix."""
    return specifiers(unit.removesuffix(".service"))


def _environment(templates: Path) -> jinja2.Environment:
    environment = jinja2.Environment(  # noqa: S701 - unit files, not HTML
        loader=jinja2.FileSystemLoader(templates),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (specifiers, quoted, argument, assignment, seconds, identifier):
        environment.filters[function.__name__] = function
    return environment


def _render(templates: Path, name: str, values: Mapping[str, Any]) -> str:
    path = templates / name
    try:
        return _environment(templates).get_template(name).render(template=name, **values)
    except jinja2.TemplateNotFound as error:
        present = sorted(entry.name for entry in templates.glob("*.j2"))
        raise UsageError(
            f"there is no unit template {error.name!r} in {templates}",
            remedy=f"set launch.template to one of: {', '.join(present) or 'none there'}",
            code="template_missing",
        ) from None
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(
            f"{error.filename or path}:{error.lineno}: {error.message}",
            remedy="correct the template",
            code="template_invalid",
        ) from None
    except (jinja2.TemplateError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be rendered: {error}",
            remedy="correct the template, or the service's launch section in inventory.yaml",
            code="template_invalid",
        ) from None


def render_unit(service: Service, templates: Path) -> str:
    """The unit file of `service`, from the template that its launch section names.

    Raises:
        UsageError: the template is missing or faulty, or a value cannot be in a unit file.
    """
    values = {
        "service": service,
        "prestart": unitfiles.beside(service.unit, unitfiles.PRESTART),
        "secrets": unitfiles.beside(service.unit, unitfiles.SECRETS),
    }
    return _render(templates, service.launch.template, values)


def render_files(service: Service, templates: Path) -> dict[str, str]:
    """path on the host -> text: the unit, its drop-ins and, where its template runs that, the
    check before a start. What holds secrets is not among them (`secrets.render`).

    Raises:
        UsageError: as `render_unit`.
    """
    unit = render_unit(service, templates)
    files = {f"{unitfiles.FOLDER}/{service.unit}": unit}
    for name, text in service.launch.drop_ins.items():
        files[unitfiles.beside(service.unit, name)] = text
    if unitfiles.PRESTART in unit:
        path = unitfiles.beside(service.unit, unitfiles.PRESTART)
        files[path] = _PRESTART.read_text(encoding="utf-8")
    return files


def render_dropin(
    templates: Path,
    *,
    lab: str,
    shim: str,
    fault_file: str,
    arguments: Sequence[str],
    template: str = "lab-cpu.conf.j2",
) -> str:
    """The drop-in that makes a lab's unit run on the CPU; no argument may hold white space.

    Raises:
        UsageError: the template is missing or faulty, or an argument cannot be split again.
    """
    for word in arguments:
        if not _PLAIN.fullmatch(word) or "%" in word or "$" in word:
            raise UsageError(
                f"{word!r} cannot be one of a drop-in's extra arguments",
                remedy="leave out white space, quotes, % and $",
                code="template_invalid",
            )
    values = {"lab": lab, "shim": shim, "fault_file": fault_file, "arguments": arguments}
    return _render(templates, template, values)
