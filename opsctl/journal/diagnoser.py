"""From the lines of a journal to what went wrong in it, line by line in bounded memory.

A kind is chosen by tier (causes before wrappers before consequences; a death notice never),
then by line (the first rank to speak before its echoes), then by the rules' order. An
exception that no rule knows is `python_error`; a death without words is `unknown`. Without an
incident the kind says what the lines are: ready, decode_stats, load_progress, …
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from opsctl.journal.conclude import conclude
from opsctl.journal.diagnosis import Diagnosis
from opsctl.journal.entry import Entry
from opsctl.journal.findings import Findings, finding
from opsctl.journal.redact import redact, without_user_text
from opsctl.journal.rules import RuleBase, Sign, rule_base, says_nothing
from opsctl.journal.seen import Seen
from opsctl.journal.silence import ACCESS, NCCL
from opsctl.journal.traceback import EXCEPTION
from opsctl.sglang import lines as ln
from opsctl.sglang.grammar import PREFIX, parse, split_lines, split_prefix

# What stands before a record's own words, beside SGLang's tag: torchrun's rank, Ray's process,
# vLLM's level and file, uvicorn's level, and stamps of another shape.
_LEAD: Final = re.compile(
    r"\[rank\d+\]: |\(\w+ (?:pid|rank)=\d+[^)]*\) |\[(?:\d{4}-)?\d\d-\d\d[ T][\d:.,]+[^\]]*\] "
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?::\s+| \d\d-\d\d [\d:.]+ \[[^\]]+\] )"
)
_STEADY: Final = re.compile(r"(?:\[[^\]]{0,60}\] )?(?:Decode|Prefill) batch[.,]? ")
_STOPPING: Final = ("Stopping ", "Stopped target ")
_SIGTERM: Final = re.compile(r"SIGTERM received|Received (?:signal )?SIGTERM|Gracefully exiting")
_FOREIGN: Final = re.compile(r"\bProcess (\d+) has \d+(?:\.\d+)? [GM]iB memory in use")
# The rest of a record after a user's text that had newlines in it.
_END_OF_TEXT: Final = re.compile(r"""['"][\s,)}\]]*(?:\w+=|$)""")
_LONGEST_TEXT: Final = 400  # lines
_LONGEST: Final = 2000  # characters of a line that are shown


class Gap(Protocol):
    """Something that the input lacks, as a reader finds it."""

    @property
    def line(self) -> int: ...
    @property
    def text(self) -> str: ...


class Diagnoser:
    """Fed with the lines of one input, in their order; not every line needs to be fed, see
    `opsctl.journal.rules.needles`.

    `now` is the host's time (Unix seconds) where the start still runs, so that silence counts
    up to it; None for an input that is finished. `patched` are the files that a patch set put
    in place, as paths below the package (``srt/speculative/dflash_worker.py``).
    """

    def __init__(self, *, now: float | None = None, patched: Collection[str] = ()) -> None:
        self._base: RuleBase = rule_base()
        self._signs: tuple[Sign, ...] = self._base.signs
        self._seen = Seen(now=now, patched=patched)
        self._findings = Findings()
        self._user_text: dict[int | None, int] = {}  # lines that may still be a user's, by process
        self._pids: set[int] = set()

    def feed(self, line: int, entry: Entry) -> None:
        """Take in an entry, which begins at `line` (from 0) of the input."""
        message = entry.message
        if entry.pid is not None and len(self._pids) < 1000:
            self._pids.add(entry.pid)
        for text in split_lines(message):
            self._line(line, entry, text)

    def note(self, gap: Gap) -> None:
        """Something is missing from the input, as its reader found out."""
        kind = self._base.kinds["journal_gap"]
        self._findings.add(finding(kind, gap.line, gap.text, tier="quiet"))

    def result(self) -> Diagnosis:
        """What the lines so far say as a whole."""
        return conclude(self._base, self._findings, self._seen)

    def _line(self, number: int, entry: Entry, line: str) -> None:
        at = entry.realtime or _own_time(line)
        seen = self._seen
        seen.silence.seen(number, at)
        if _STEADY.match(line) and (batch := parse(line)) is not None:
            self._user_text.pop(entry.pid, None)
            seen.batch(number, at, batch, line)
            # Most lines of a long journal, and they say nothing else, unless another rank
            # wrote into the middle of one.
            if "rror" not in line and "Traceback" not in line:
                return
        _, rest = split_prefix(line)
        tagged = rest != line
        text, bare = _without_lead(rest), rest if tagged else _without_lead(line)
        if self._quotes_users(entry, text, tagged=tagged):
            return
        if not tagged and seen.outputs.feed(number, text):
            seen.numbers.text(number, text)
            seen.show(number, line)
            return
        if says_nothing(text):
            parsed = parse(line)
            if isinstance(parsed, ln.ServerArgs):
                seen.arguments(parsed)
            return
        if self._access(number, at, entry, text):
            return
        source = seen.tracebacks.feed(number, entry.pid, line if tagged else bare)
        if (trace := seen.tracebacks.open(entry.pid)) is not None and trace.start == number:
            trace.phase = seen.phase()
        if source:
            return
        visible, is_open = without_user_text(text)
        self._say(number, at, entry, line, visible)
        taken = self._match(number, entry, visible)
        if taken == "request_payload":
            self._user_text[entry.pid] = _LONGEST_TEXT if is_open else 0
            self._worth_saying(number, text)
        if not taken and seen.tracebacks.open(entry.pid) is None and EXCEPTION.match(visible):
            seen.exception(number, redact(line)[:_LONGEST], tagged=tagged)

    def _worth_saying(self, number: int, text: str) -> None:
        """A user's words that sound like an incident."""
        lowered = text.lower()
        if any(s.tier in {"cause", "symptom"} and s.found_in(text, lowered) for s in self._signs):
            kind = self._base.kinds["request_payload"]
            self._findings.add(finding(kind, number, redact(text), tier="quiet", first=True))

    def _quotes_users(self, entry: Entry, text: str, *, tagged: bool) -> bool:
        """Whether a user's text, which had newlines in it, goes on in this line."""
        left = self._user_text.get(entry.pid, 0)
        if left:
            self._user_text[entry.pid] = left - 1
            if tagged or entry.from_manager or _END_OF_TEXT.search(text):
                self._user_text[entry.pid] = 0
        return left > 0 and not tagged and not entry.from_manager

    def _access(self, number: int, at: float, entry: Entry, text: str) -> bool:
        """An access log's line, whose path is the client's."""
        found = ACCESS.match(text)
        if found is None:
            return False
        path, status = found["path"], int(found["status"])
        seen = self._seen
        shown = f"{found['method']} {path.partition('?')[0]} {status}"
        if path.startswith("/health"):
            seen.silence.health(number, at, path, status)
            if status >= 500 and not seen.loading and seen.stopped_at is None:
                self._add("health_hang", number, shown)
        elif found["method"] == "POST" and status == 200:
            seen.answered_at = number
        elif 400 <= status < 500:
            self._add("client_error", number, shown)
        if path.startswith(("/model_info", "/get_model_info")) and status == 200:
            seen.model_info_at = number
        return True

    def _say(self, number: int, at: float, entry: Entry, line: str, text: str) -> None:
        """What a line says of the start's progress, its stop and its acceptance."""
        seen = self._seen
        parsed = parse(line)
        if parsed is not None:
            seen.log_line(number, at, parsed)
        elif NCCL in text:
            seen.silence.nccl(number, at)
        manager = entry.from_manager or entry.identifier == "systemd"
        if seen.stopped_at is None:
            if (manager and text.startswith(_STOPPING)) or _SIGTERM.match(text):
                seen.stopped_at = number
        if "bort request" in text:
            seen.silence.aborted(number)
        if parsed is None and seen.numbers.text(number, text):
            seen.show(number, redact(line))

    def _match(self, number: int, entry: Entry, text: str, *, only_shadows: bool = False) -> str:
        """The first kind that a line shows, empty if none; a kind that shadows is the only one."""
        lowered = text.lower()
        taken = ""
        for sign in self._signs:
            if (only_shadows and not sign.shadows) or not sign.found_in(text, lowered):
                continue
            self._found(sign, number, entry, text)
            taken = taken or ("" if sign.tier == "notice" else sign.kind)
            if sign.shadows:
                break
        return taken

    def _found(self, sign: Sign, number: int, entry: Entry, text: str) -> None:
        trace = self._seen.tracebacks.open(entry.pid)
        kind = self._base.kinds[sign.kind]
        if trace is not None and trace.handled and kind.incident:
            return  # one request's; the server goes on
        if sign.kind == "health_hang" and self._seen.loading:
            return
        if self._seen.stopped_at is not None and sign.tier in {"symptom", "notice"}:
            # It ends as it was told to, by SIGKILL of its own children in the end.
            if sign.kind == "child_died":
                self._seen.killed_at = number
            return
        if trace is not None and kind.incident and sign.tier != "notice":
            trace.explained = True
        shown = redact(text)[:_LONGEST]
        self._findings.add(finding(kind, number, shown, sign=sign, phase=self._seen.phase()))
        if sign.kind == "child_died":
            self._seen.died_at = number
            if "crashed" in text:
                self._seen.silence.child_died(number, _own_time(text) or entry.realtime)
        foreign = _FOREIGN.search(text) if sign.kind == "cuda_oom" else None
        if foreign and int(foreign[1]) not in self._pids:
            other = self._base.kinds["orphan_processes"]
            self._findings.add(finding(other, number, shown, first=True))

    def _add(self, kind: str, number: int, text: str) -> None:
        rule = self._base.kinds[kind]
        self._findings.add(
            finding(rule, number, text, sign=rule.signs[0], phase=self._seen.phase())
        )


def diagnose(
    entries: Iterable[Entry], *, now: float | None = None, patched: Collection[str] = ()
) -> Diagnosis:
    """What these entries say as a whole; line numbers count entries. See `Diagnoser`.

    Lines that quote users (request logs) are never searched, and what is shown of any line is
    redacted.
    """
    diagnoser = Diagnoser(now=now, patched=patched)
    for line, entry in enumerate(entries):
        diagnoser.feed(line, entry)
    return diagnoser.result()


def _without_lead(text: str) -> str:
    while (lead := _LEAD.match(text)) is not None:
        text = text[lead.end() :]
    return text


def _own_time(line: str) -> float:
    """The time in SGLang's tag, as if it were UTC; 0.0 without one."""
    from datetime import UTC, datetime

    tag = PREFIX.match(line)
    if tag is None or not tag["at"]:
        return 0.0
    return datetime.fromisoformat(tag["at"]).replace(tzinfo=UTC).timestamp()
