"""From the lines of a journal to what went wrong in it, line by line in bounded memory.

A kind is chosen by tier (causes before wrappers before consequences; a death notice never),
then by line (the first rank to speak before its echoes), then by the rules' order. An
exception that no rule knows is `python_error`; a death without words is `child_died`, or
`unknown` where only the service manager tells of it, or native code in words of its own. Without an
incident the kind says what the lines are: ready, decode_stats, load_progress, …
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from opsctl.journal.conclude import conclude
from opsctl.journal.decode import DecodeRun
from opsctl.journal.diagnosis import Diagnosis
from opsctl.journal.entry import Entry
from opsctl.journal.findings import Findings, finding
from opsctl.journal.outputs import is_probe
from opsctl.journal.patched import Patched
from opsctl.journal.redact import redact, without_user_text
from opsctl.journal.rules import RuleBase, Sign, rule_base, says_nothing
from opsctl.journal.seen import Seen
from opsctl.journal.silence import ACCESS, NCCL
from opsctl.journal.traceback import EXCEPTION
from opsctl.journal.units import unit_of
from opsctl.journal.windows import Windows
from opsctl.sglang import lines as ln
from opsctl.sglang.grammar import PREFIX, parse, split_lines, split_prefix

# What stands before a record's own words, beside SGLang's tag: torchrun's rank, Ray's process,
# vLLM's level and file, uvicorn's level, and stamps of another shape.
_LEAD: Final = re.compile(
    r"\[rank\d+\]: |\(\w+ (?:pid|rank)=\d+[^)]*\) |\[(?:\d{4}-)?\d\d-\d\d[ T][\d:.,]+[^\]]*\] "
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?::\s+| \d\d-\d\d [\d:.]+ \[[^\]]+\] )"
)
_STEADY: Final = re.compile(r"(?:\[[^\]]{0,60}\] )?(?:Decode|Prefill) batch[.,]? ")
# A level or a warning's class.
_WARNING: Final = re.compile(r"\b(?:WARN(?:ING)?|[Ww]arning)\b|Warning:")
# Lines of a start that say nothing of how far it is.
_STARTING: Final = re.compile(
    r"(?i)\bavail(?:able)?[ _](?:gpu[ _])?mem|max_total_num_tokens=|Started server process"
    r"|application startup|^Started \S+\.service|cuda graph addresses|Capture cuda graph bs"
)
_STOPPING: Final = ("Stopping ", "Stopped target ")
_SIGTERM: Final = re.compile(r"SIGTERM received|Received (?:signal )?SIGTERM|Gracefully exiting")
_FOREIGN: Final = re.compile(r"\bProcess (\d+) has \d+(?:\.\d+)? [GM]iB memory in use")
# The rest of a record after a user's text that had newlines in it.
_END_OF_TEXT: Final = re.compile(r"""['"][\s,)}\]]*(?:\w+=|$)""")
_LONGEST_TEXT: Final = 400  # lines
_MOST_PIDS: Final = 1000
_LONGEST: Final = 2000  # characters of a line that are shown


@dataclass(frozen=True, slots=True)
class _Line:
    """`text` is the line after all that stands before its own words; `tagged`: by SGLang."""

    number: int
    at: float  # Unix seconds, 0.0 without a time
    entry: Entry
    line: str
    text: str
    tagged: bool


class Gap(Protocol):
    """Something that the input lacks, as a reader finds it."""

    @property
    def line(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def kind(self) -> str: ...


class Diagnoser:
    """Fed with the lines of one input, in their order; not every line needs to be fed, see
    `opsctl.journal.rules.needles`.

    `now` is the host's time (Unix seconds) where the start still runs, so that silence counts
    up to it; None for an input that is finished. `patched` are the files that a patch set put
    in place, as paths below the package (``srt/speculative/dflash_worker.py``).
    """

    def __init__(self, *, now: float | None = None, patched: Collection[str] = ()) -> None:
        self._base: RuleBase = rule_base()
        self._seen = Seen(now=now, patched=Patched(patched))
        self._findings = Findings()
        self._windows = Windows()
        self._user_text: dict[int | None, int] = {}  # lines that may still be a user's, by process
        self._pids: set[int] = set()

    def feed(self, line: int, entry: Entry) -> None:
        """Take in an entry, which begins at `line` (from 0) of the input."""
        pid = entry.pid
        if pid is not None and len(self._pids) < _MOST_PIDS:
            self._pids.add(pid)
        if not self._windows.holds(pid):  # what began there is over, however it ended
            self._seen.tracebacks.close(pid)
            self._user_text.pop(pid, None)
        self._windows.feed(entry)
        for text in split_lines(entry.message):
            self._line(line, entry, text)

    def feed_run(self, run: DecodeRun) -> None:
        """Take in decode lines between which nothing else stands.

        In a long input not all of them are read whole: as in `Numbers` a point does, one stands
        for those of its rank after it. The last is, since silence begins there.
        """
        at, last, number = 0, len(run) - 1, run.line
        lengths, ranks = run.accept_lens, run.ranks
        whole = len(lengths) == len(run)
        while at < last:
            stop = min(at + self._seen.numbers.every, last)
            own: dict[str, list[int]] = {}
            for index in range(at, stop):
                own.setdefault(ranks[index], []).append(index)
            for indexes in own.values():
                alike = [lengths[index] for index in indexes] if whole else []
                shown = number + run.lines_between(at, indexes[0])
                self._decoded(shown, run.entry(indexes[0]), alike)
            number += run.lines_between(at, stop)
            at = stop
        self._decoded(number, run.entry(last), [])

    def _decoded(self, number: int, entry: Entry, alike: list[float]) -> None:
        """A decode line, which stands for as many as `alike` has accept lengths."""
        batch = parse(entry.message) if len(alike) > 1 else None
        if isinstance(batch, ln.DecodeBatch):
            time = entry.realtime or _own_time(entry.message)
            self._seen.units.speaks(entry.identifier)
            self._seen.decoded(number, time, batch, entry.message, alike)
        else:
            self.feed(number, entry)

    def end(self, backwards: Iterable[Entry]) -> None:
        """Take in how long the input went on, by the last of its entries that has a time: a
        reader may have left them out."""
        times = (entry.realtime or _own_time(entry.message) for entry in backwards)
        self._seen.silence.seen(-1, next(filter(None, times), 0.0))

    def note(self, gap: Gap) -> None:
        """Something is missing from the input, as its reader found out."""
        if gap.kind == "midway":  # so does every excerpt
            self._seen.begins_midway = True
            return
        kind = self._base.kinds["journal_gap"]
        self._findings.add(finding(kind, gap.line, gap.text, tier="quiet"))

    def goes_on(self, now: float | None) -> None:
        """What `now` is meanwhile, for who feeds it as lines come; None once the start is over."""
        self._seen.now = now

    def result(self) -> Diagnosis:
        """What the lines so far say as a whole; more may follow."""
        return conclude(self._base, self._findings.copy(), self._seen)

    def _line(self, number: int, entry: Entry, line: str) -> None:
        at = entry.realtime or _own_time(line)
        self._seen.silence.seen(number, at)
        if self._batch(number, at, entry, line):
            return
        _, rest = split_prefix(line)
        read = _Line(number, at, entry, line, _without_lead(rest), tagged=rest != line)
        if not (self._quotes_users(read) or self._aside(read)):
            self._record(read)

    def _batch(self, number: int, at: float, entry: Entry, line: str) -> bool:
        """Most lines of a long journal. They say nothing else, unless another rank wrote into
        the middle of one."""
        if not _STEADY.match(line) or (batch := parse(line)) is None:
            return False
        self._user_text.pop(entry.pid, None)
        self._seen.units.speaks(entry.identifier)
        self._seen.batch(number, at, batch, line)
        return "rror" not in line and "Traceback" not in line

    def _aside(self, read: _Line) -> bool:
        """Lines that are nobody's log record of what the server does: a probe's, the server's
        arguments, an access log."""
        seen = self._seen
        if not read.tagged and seen.outputs.feed(read.number, read.text):
            seen.numbers.text(read.number, read.text)
            # A probe's text is its own; an answer that was pasted may repeat a user's.
            shown = read.line if is_probe(read.text) else redact(read.line)
            seen.show(read.number, shown[:_LONGEST])
            return True
        if says_nothing(read.text):
            parsed = parse(read.line)
            if isinstance(parsed, ln.ServerArgs):
                seen.arguments(parsed)
            return True
        return self._access(read)

    def _record(self, read: _Line) -> None:
        """A line of the server's, of the kernel's, or of whoever else writes here."""
        visible, is_open = without_user_text(read.text)
        if self._payload(read, visible):
            self._user_text[read.entry.pid] = _LONGEST_TEXT if is_open else 0
            return
        collector, pid = self._seen.tracebacks, read.entry.pid
        record = read.line.removesuffix(read.text) if read.tagged else ""
        source = collector.feed(read.number, pid, record + visible)
        trace = collector.open(pid)
        if trace is not None and trace.start == read.number:
            trace.phase = self._seen.phase()
        if source:
            return
        self._say(read, visible)
        if not self._match(read, visible) and trace is None and EXCEPTION.match(visible):
            shown = redact(read.line)[:_LONGEST]
            self._seen.exception(read.number, shown, tagged=read.tagged)

    def _quotes_users(self, read: _Line) -> bool:
        """Whether a user's text, which had newlines in it, goes on in this line."""
        pid = read.entry.pid
        left = self._user_text.get(pid, 0)
        if not left:
            return False
        over = read.tagged or read.entry.from_manager
        ends = over or _END_OF_TEXT.search(read.text) is not None
        self._user_text[pid] = 0 if ends else left - 1
        return not over

    def _payload(self, read: _Line, visible: str) -> bool:
        """Whether the line logs a request or an answer; then it says nothing of the server."""
        lowered = visible.lower()
        for sign in self._base.kinds["request_payload"].signs:
            if sign.found_in(visible, lowered):
                self._found(sign, read, visible)
                self._worth_saying(read)
                if self._seen.outputs.finished(read.number, visible):
                    self._seen.show(read.number, redact(read.line)[:_LONGEST])
                return True
        return False

    def _worth_saying(self, read: _Line) -> None:
        """A user's words that sound like an incident."""
        if any(sign.tier in {"cause", "symptom"} for sign in self._base.found_in(read.text)):
            kind = self._base.kinds["request_payload"]
            shown = redact(read.text)[:_LONGEST]
            self._findings.add(finding(kind, read.number, shown, tier="quiet", first=True))

    def _access(self, read: _Line) -> bool:
        """An access log's line, whose path is the client's."""
        found = ACCESS.match(read.text)
        if found is None:
            return False
        number, path, status = read.number, found["path"], int(found["status"])
        seen = self._seen
        shown = f"{found['method']} {path.partition('?')[0]} {status}"
        if path.startswith("/health"):
            seen.silence.health(number, read.at, path, status)
            if status >= 500 and not seen.loading and seen.stopped_at is None:
                self._add("health_hang", number, shown)
        elif found["method"] == "POST" and status == 200:
            seen.answered_at = number
        elif 400 <= status < 500:
            self._add("client_error", number, shown)
        if path.startswith(("/model_info", "/get_model_info")) and status == 200:
            seen.model_info_at = number
        return True

    def _say(self, read: _Line, text: str) -> None:
        """What a line says of patches, the start's progress, its stop and its acceptance."""
        seen, number = self._seen, read.number
        parsed = parse(read.line)
        if parsed is not None:
            seen.log_line(number, read.at, parsed)
        elif NCCL in text:
            seen.silence.nccl(number, read.at)
        seen.starting = seen.starting or _STARTING.search(text) is not None
        seen.warned = seen.warned or _WARNING.search(read.line) is not None
        manager = read.entry.from_manager or read.entry.identifier == "systemd"
        if unit := unit_of(text):
            seen.units.mentioned(unit)
        told = manager and text.startswith(_STOPPING) and not seen.units.is_other(unit)
        sigterm = _SIGTERM.match(text) is not None
        if (told or sigterm) and seen.stopped_at is None:
            seen.stopped_at = number
            seen.units.stopping(unit, number, read.at)
        if sigterm:
            seen.units.stopped()
        if read.tagged:
            seen.units.speaks(read.entry.identifier)
        if "atch" in text:
            seen.patched.feed(number, text)
        if "bort request" in text:
            seen.silence.aborted(number)
        if parsed is None and seen.numbers.text(number, text):
            seen.show(number, redact(read.line)[:_LONGEST])

    def _match(self, read: _Line, text: str) -> bool:
        """Whether the line shows more than an echo; one that shadows is all that it shows."""
        taken = False
        for sign in self._base.found_in(text):
            self._found(sign, read, text)
            taken = taken or sign.tier != "notice"
            if sign.shadows:
                break
        return taken

    def _found(self, sign: Sign, read: _Line, text: str) -> None:
        seen, number = self._seen, read.number
        trace = seen.tracebacks.open(read.entry.pid)
        kind = self._base.kinds[sign.kind]
        unit = unit_of(text) if kind.incident else ""
        if seen.units.is_other(unit):
            return
        if kind.incident and not self._counts(sign, number, handled=bool(trace and trace.handled)):
            return
        if trace is not None and kind.incident and sign.tier != "notice":
            trace.explained = True
        if trace is not None and sign.kind == "client_error" and not trace.fatal:
            trace.handled = True  # it says itself that the request was at fault
        if sign.kind == "benign_warning":
            seen.benign += 1
        shown = redact(text)[:_LONGEST]
        self._findings.add(finding(kind, number, shown, sign=sign, phase=seen.phase()))
        if sign.kind == "child_died":
            if unit:
                seen.units.ended(unit, number, read.at)
            else:
                seen.child_died_at = number
            if "crashed" in text:
                seen.silence.child_died(number, read.at)
        foreign = _FOREIGN.search(text) if sign.kind == "cuda_oom" else None
        if foreign and int(foreign[1]) not in self._pids:
            other = self._base.kinds["orphan_processes"]
            self._findings.add(finding(other, number, shown, first=True))

    def _counts(self, sign: Sign, number: int, *, handled: bool) -> bool:
        """Whether an incident's sign is one where it stands."""
        seen = self._seen
        if seen.stopped_at is not None and sign.tier in {"symptom", "notice"}:
            # It ends as it was told to, by SIGKILL of its own children in the end.
            if sign.kind == "child_died":
                seen.killed_at = number
            return False
        # One request's traceback, after which the server goes on; a probe that came too early.
        return not (handled or (sign.kind == "health_hang" and seen.loading))

    def _add(self, kind: str, number: int, text: str) -> None:
        rule = self._base.kinds[kind]
        sign = rule.signs[0]
        self._findings.add(finding(rule, number, text, sign=sign, phase=self._seen.phase()))


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
    tag = PREFIX.match(line)
    if tag is None or not tag["at"]:
        return 0.0
    return datetime.fromisoformat(tag["at"]).replace(tzinfo=UTC).timestamp()
