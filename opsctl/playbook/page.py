"""docs/runbooks.md from the runbooks: `python -m opsctl.playbook.page > docs/runbooks.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from opsctl.playbook.load import Shelf
from opsctl.playbook.model import Playbook, Runbook, Use

_HEAD = """\
# Runbooks

Made by `python -m opsctl.playbook.page > docs/runbooks.md` from `playbooks/runbooks/*.yaml`; do not
edit this page. `opsctl triage` says which of them to follow; what each led out of in a lab is in
[runbook-trials.md](runbook-trials.md), and how to write your own in [playbooks.md](playbooks.md).

```
opsctl runbook list                          # when to use which
opsctl runbook show hung                     # what it does, step by step
opsctl runbook run hung ct200 --dry-run      # look, and say what would be done
opsctl runbook run hung ct200                # look, and ask before each step that changes something
```

A step with a star changes the service: it is asked for (`y`, `a` for all the rest, anything else
is no), or `--yes` is given; so is arming the guard, after which the host carries it to an end by
itself should this side be lost. A no before the first change leaves everything as it was (exit 3);
after it (exit 11) the guard starts a service that ran and is left stopped.

| runbook | when |
|---|---|
"""


def text() -> str:
    """The page."""
    shelf = Shelf.beside(None)
    books = [shelf.load(name, runbook=True) for name in shelf.runbooks()]
    rows = [f"| [{book.name}](#{book.name}) | {_of(book).when} |\n" for book in books]
    return _HEAD + "".join(rows) + "".join(f"\n{_section(book)}" for book in books)


def _section(book: Playbook) -> str:
    return "\n".join(_lines(book)) + "\n"


def _lines(book: Playbook) -> Iterator[str]:
    found = _of(book)
    yield f"## {book.name}\n\n{book.summary}\n"
    yield f"**When.** {found.when}\n\n**Does.** {found.does.strip()}\n\n**Never**"
    yield from (f"- {text}" for text in found.never)
    yield "\n| | step | what | |\n|---|---|---|---|"
    yield from (_row(number, use) for number, use in enumerate(book.steps, 1))
    after = ", ".join(f"`{use.name}`" for use in book.on_failure)
    yield f"\nOn a failure after a change: {after or 'the report says so'}."
    if found.incidents:
        yield f"\nFor incidents of the kinds {', '.join(f'`{kind}`' for kind in found.incidents)}."


def _row(number: int, use: Use) -> str:
    star = " *" if use.spec.effect == "changes" else ""
    given = [f"{key}: {value}" for key, value in use.given.items()]
    return f"| {number} | `{use.name}`{star} | {use.spec.does} | {', '.join(given + use.held)} |"


def _of(book: Playbook) -> Runbook:
    assert book.runbook is not None
    return book.runbook


if __name__ == "__main__":
    sys.stdout.write(text())
