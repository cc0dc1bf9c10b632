"""A notice of a rollout as the body of a POST: generic JSON, or Slack's blocks. Pure.

A notice is {event, at, command, host, service, from, to, generation, who, why, verdict,
exit_code, duration_s, summary, code, cause, remedy, next}. `from` and `to` are {generation, set}:
where the rollout began and where it was going; `generation` is what is in place at the end. A key
may be missing or None. The client and the guard on the host write the same forms, which is why
they are here.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

Notice = Dict[str, Any]

SCHEMA = "opsctl.notice/1"
FORMS = ("json", "slack")

# Characters. A section of Slack's takes 3000 (docs.slack.dev, Block Kit: section), and a sign
# that is escaped becomes up to five. A phone shows some ten lines of forty.
_SLACK_TEXT, _SLACK_HEAD = 500, 150
# Of the generic form, so that a journal in a cause makes no letter of it.
_LONGEST = 4000

_HEADS = {
    "start": "{command} on {host} begins",
    "success": "{command} on {host} succeeded",
    "inconclusive": "{command} on {host}: in place, but its health is unproved",
    "rollback": "{command} on {host} FAILED and was rolled back",
    "failure": "{command} on {host} FAILED",
    "interrupted": "{command} on {host} was interrupted",
    "guard": "the guard on {host} ended a {command} that was lost",
    "test": "a test of the notices of {host}",
}


def body(notice: Notice, form: str) -> bytes:
    """The notice in one of `FORMS`, as UTF-8 JSON."""
    content = _slack(notice) if form == "slack" else _generic(notice)
    return json.dumps(content).encode()


def headline(notice: Notice) -> str:
    """What happened, in one line that a lock screen shows whole."""
    names = {key: str(notice.get(key) or "?") for key in ("command", "host")}
    return _HEADS.get(str(notice.get("event")), "{command} on {host}").format(**names)


def move(notice: Notice) -> str:
    """`ddtree 1.0.0 (generation 3) to ddtree 1.1.0 (generation 4)`, or what of it is known."""
    start, goal = _side(notice.get("from")), _side(notice.get("to"))
    if start and goal and start != goal:
        return "%s to %s" % (start, goal)
    return goal or start


def _side(side: Optional[Dict[str, Any]]) -> str:
    side = side or {}
    number, name = side.get("generation"), side.get("set")
    if number is None:
        return str(name or "")
    return "%s (generation %s)" % (name, number) if name else "generation %s" % number


def took(seconds: float) -> str:
    """`45s` or `10m45s`."""
    whole = round(seconds)
    return "%dm%02ds" % divmod(whole, 60) if whole >= 60 else "%ds" % whole


# -- generic -------------------------------------------------------------------------------------


def _generic(notice: Notice) -> Dict[str, Any]:
    """Every field, and `text` in the sense of most chat receivers: all of it in some lines."""
    content = {
        key: _clipped(value, _LONGEST) if isinstance(value, str) else value
        for key, value in notice.items()
    }
    parts = [headline(notice), *_told(notice), _next(notice)]
    text = "\n".join(_clipped(part, _LONGEST) for part in parts if part)
    return dict(content, schema=SCHEMA, text=text)


# -- Slack ---------------------------------------------------------------------------------------


def _slack(notice: Notice) -> Dict[str, Any]:
    """Blocks of a line or some each, which a phone shows below one another.

    No link is made of anything: `verbatim` keeps Slack from finding some, and its own begin with
    a sign that is escaped.
    """
    head = _escaped(headline(notice), _SLACK_HEAD)
    told = [text for text in (_escaped(part, _SLACK_TEXT) for part in _told(notice)) if text]
    blocks = [_section("*%s*" % head)]
    blocks += [_section(text) for text in told]
    command = _escaped(str(notice.get("next") or "").replace("`", "'"), _SLACK_TEXT)
    if command:
        blocks.append(_section("Next: `%s`" % command))
    facts = _escaped(_facts(notice), _SLACK_TEXT)
    if facts:
        blocks.append({"type": "context", "elements": [_mrkdwn(facts)]})
    # What a notification shows, and a receiver that knows no blocks.
    text = "\n".join([head, *told])
    return {"text": text, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _section(text: str) -> Dict[str, Any]:
    return {"type": "section", "text": _mrkdwn(text)}


def _mrkdwn(text: str) -> Dict[str, Any]:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _escaped(text: str, limit: int) -> str:
    """Slack's own three (docs.slack.dev, Formatting message text), after the text is clipped: no
    entity is cut."""
    clipped = _clipped(text, limit)
    return clipped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


# -- what there is to say --------------------------------------------------------------------------


def _told(notice: Notice) -> List[str]:
    """Where it went, what is in place, and why; a part each."""
    parts = [move(notice)]
    cause, summary = notice.get("cause"), notice.get("summary")
    if cause:
        parts.append("Cause: %s" % cause)
        if notice.get("generation") is not None:
            parts.append("In place now: generation %s" % notice["generation"])
        if notice.get("remedy"):
            parts.append("Remedy: %s" % notice["remedy"])
    elif summary:
        parts.append(str(summary))
    return [part for part in parts if part]


def _next(notice: Notice) -> str:
    return "Next: %s" % notice["next"] if notice.get("next") else ""


def _facts(notice: Notice) -> str:
    exit_code, seconds = notice.get("exit_code"), notice.get("duration_s")
    parts = [
        notice.get("service"),
        notice.get("who"),
        "" if seconds is None else took(seconds),
        "" if exit_code is None else "exit %s" % exit_code,
        "why: %s" % notice["why"] if notice.get("why") else "",
    ]
    return ", ".join(str(part) for part in parts if part)


def _clipped(text: str, limit: int) -> str:
    """In one line, without what no screen shows, and of `limit` characters at most."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
