"""What is known to go wrong with a unit that runs SGLang, looked for in its files.

Pure: a `Subject` in, findings out. docs/units.md has the source of each. Exits of SGLang as
measured on 0.5.12.post1: a clean stop and every crash of a child end in SIGKILL on itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from opsctl.units import lint_harm, lint_secrets
from opsctl.units.subject import Finding, Subject
from opsctl.units.unitfile import words

# Seconds. A drain of what is running: answers of some thousand tokens.
_DRAIN = 30.0
_KILL = frozenset({"SIGKILL", "KILL", "9"})
# Of several files: these add to a list, and so override nothing.
_LISTS: Final = re.compile(
    "(?:Environment|EnvironmentFile|Exec(?:StartPre|StartPost|Stop|StopPost)|After|Before|Wants|"
    "Requires|RequiresMountsFor|WantedBy|SuccessExitStatus|DeviceAllow|ReadWritePaths|"
    "Documentation|PassEnvironment)"
)


def lint(subject: Subject, verify: Iterable[str] = ()) -> list[Finding]:
    """Every finding, the worst first; `verify` are the lines of ``systemd-analyze verify``."""
    found = [*_verified(verify)]
    for rule in (*RULES, *lint_harm.RULES, *lint_secrets.RULES):
        found += rule(subject)
    return sorted(found, key=lambda finding: (finding.status != "fail", finding.name))


def _verified(lines: Iterable[str]) -> Iterator[Finding]:
    for line in lines:
        yield Finding(
            "verify",
            "fail" if "not executable" in line else "warn",
            f"systemd-analyze verify: {line}",
            "correct that: systemd ignores what it does not understand",
        )


def _ends_as_success(subject: Subject) -> bool:
    words = [w for s in subject.text.all("SuccessExitStatus") for w in s.value.split()]
    return bool(_KILL & set(words))


def restart(subject: Subject) -> Iterator[Finding]:
    how, where = subject.value("Restart", "no"), subject.where("Restart")
    success = _ends_as_success(subject)
    if how in {"no", "on-success"}:
        yield Finding(
            "restart",
            "fail",
            f"Restart={how}: after a crash the server stays down",
            "Restart=always, with a start limit",
            where,
        )
    elif how != "always" and success:
        yield Finding(
            "restart_hidden",
            "fail",
            f"Restart={how} with SuccessExitStatus=SIGKILL: SGLang ends a crash by SIGKILL on "
            "itself, which then is a success, so a crashed server stays down and its unit green",
            "Restart=always",
            where,
        )
    elif how in {"on-abort", "on-watchdog"}:
        yield Finding(
            "restart",
            "fail",
            f"Restart={how}: a traceback while loading ends with status 1, and it stays down",
            "Restart=always",
            where,
        )
    prevented = subject.value("RestartPreventExitStatus").split()
    if _KILL & set(prevented):
        yield Finding(
            "restart_prevented",
            "fail",
            "RestartPreventExitStatus=SIGKILL: that is how each crash of SGLang ends",
            "take SIGKILL out of it",
            subject.where("RestartPreventExitStatus"),
        )
    if subject.value("OOMPolicy") == "continue" and success:
        yield Finding(
            "oom_policy",
            "warn",
            "OOMPolicy=continue: a server that the kernel kills for want of memory ends by SIGKILL,"
            " which counts as success, and the unit does not say oom-kill",
            "OOMPolicy=kill",
            subject.where("OOMPolicy"),
        )
    if not success:
        yield Finding(
            "success_exit_status",
            "warn",
            "no SuccessExitStatus=SIGKILL: SGLang ends a clean stop so, and each leaves the unit "
            "failed",
            "SuccessExitStatus=SIGKILL, with Restart=always",
            subject.where("SuccessExitStatus"),
        )


def start_limit(subject: Subject) -> Iterator[Finding]:
    if subject.value("Restart", "no") in {"no", "on-success"}:
        return
    for key in ("StartLimitIntervalSec", "StartLimitBurst"):
        misplaced = subject.setting(key)
        if misplaced is not None and key != "StartLimitBurst":
            yield Finding(
                "start_limit_ignored",
                "fail",
                f"{key} stands in [Service], where systemd does not know it",
                "put it into [Unit]",
                misplaced.where,
            )
    keys = ("StartLimitIntervalSec", "StartLimitInterval")
    interval = subject.seconds(
        *keys, default=subject.manager.get("DefaultStartLimitIntervalUSec", "10s"), section="Unit"
    )
    burst_text = subject.value("StartLimitBurst", section="Unit") or subject.value(
        "StartLimitBurst", subject.manager.get("DefaultStartLimitBurst", "5")
    )
    burst = int(burst_text) if burst_text.isdecimal() else 5
    where = subject.where(*keys, section="Unit") or subject.where("StartLimitBurst", section="Unit")
    if not interval or not burst:
        yield Finding(
            "start_limit",
            "fail",
            "no start limit: a crash loop loads the weights for ever and never shows as failed",
            "StartLimitIntervalSec and StartLimitBurst=3 in [Unit]",
            where,
        )
        return
    pause = subject.seconds("RestartSec", default="100ms")
    needed = burst * (subject.load_s + pause)
    if interval < needed:
        yield Finding(
            "start_limit_hidden",
            "fail",
            f"{burst} starts in {interval:.0f} s are the limit, but with loads of up to "
            f"{subject.load_s:.0f} s that many take {needed:.0f} s: a crash loop never meets it",
            f"StartLimitIntervalSec={math.ceil(needed * 4 / 3)} in [Unit]",
            where,
        )


def stopping(subject: Subject) -> Iterator[Finding]:
    keys = ("TimeoutStopSec", "TimeoutSec")
    default = subject.manager.get("DefaultTimeoutStopUSec", "90s")
    bound = subject.seconds(*keys, default=default)
    wanted = min(_DRAIN, subject.service.launch.stop_timeout)
    if math.isinf(bound) or (subject.setting(*keys) and bound == 0):
        yield Finding(
            "stop_timeout",
            "fail",
            "TimeoutStopSec is infinite, and SGLang's drain after SIGTERM has no bound: a stop "
            "may never end",
            "TimeoutStopSec=90",
            subject.where(*keys),
        )
    elif bound < wanted:
        yield Finding(
            "stop_timeout_short",
            "warn",
            f"SIGKILL follows SIGTERM after {bound:.0f} s: answers under way are cut off",
            f"TimeoutStopSec={subject.service.launch.stop_timeout:.0f}",
            subject.where(*keys),
        )
    mode = subject.value("KillMode", "control-group")
    if mode in {"process", "none"}:
        yield Finding(
            "kill_mode",
            "fail",
            f"KillMode={mode}: ranks that outlive the server keep their GPU memory, and the next "
            "start has none",
            "KillMode=mixed",
            subject.where("KillMode"),
        )
    elif mode == "control-group":
        yield Finding(
            "kill_mode_group",
            "warn",
            "KillMode=control-group: at a stop the ranks get SIGTERM beside the server, which "
            "drains through them",
            "KillMode=mixed: SIGTERM to the server alone, SIGKILL to what is left",
            subject.where("KillMode"),
        )
    signal = subject.value("KillSignal", "SIGTERM")
    if subject.value("SendSIGKILL").lower() in {"no", "false", "0", "off"}:
        yield Finding(
            "send_sigkill",
            "fail",
            "SendSIGKILL=no: what hangs in its drain, or is orphaned, stays with its GPU memory",
            "leave it out",
            subject.where("SendSIGKILL"),
        )
    if signal not in {"SIGTERM", "TERM", "15"}:
        yield Finding(
            "kill_signal",
            "warn",
            f"KillSignal={signal}: SGLang drains its requests on SIGTERM only",
            "leave it out",
            subject.where("KillSignal"),
        )


def starting(subject: Subject) -> Iterator[Finding]:
    how = subject.value("Type", "simple")
    bound = subject.seconds(
        *("TimeoutStartSec", "TimeoutSec"),
        default=subject.manager.get("DefaultTimeoutStartUSec", "90s"),
    )
    if how in {"notify", "notify-reload", "dbus", "forking"}:
        yield Finding(
            "type",
            "fail",
            f"Type={how}: SGLang neither notifies nor forks, so each start is killed after "
            f"TimeoutStartSec ({bound:.0f} s)",
            "Type=exec; that it is ready it says in its log",
            subject.where("Type"),
        )
    elif how == "oneshot":
        yield Finding("type", "fail", "Type=oneshot: a server never ends", "Type=exec",
                      subject.where("Type"))  # fmt: skip
    elif how == "simple":
        yield Finding(
            "type_simple",
            "warn",
            "Type=simple: a missing interpreter or user counts as a start that went well",
            "Type=exec",
            subject.where("Type"),
        )
    waits = subject.setting("ExecStartPost")
    if waits is not None and bound < subject.service.load.budget:
        yield Finding(
            "start_post",
            "warn",
            f"ExecStartPost counts in TimeoutStartSec ({bound:.0f} s): one that waits for the "
            "server has it killed in the middle of its load",
            "wait from outside (opsctl wait), or set TimeoutStartSec above the load's budget",
            waits.where,
        )
    if not subject.text.all("ExecStartPre"):
        yield Finding(
            "no_check",
            "warn",
            "nothing looks before a start whether weights, port and GPUs are there: it shows "
            "after minutes of a load",
            "opsctl unit install brings such a check",
        )
    watchdog = subject.setting("WatchdogSec")
    if watchdog is not None and subject.seconds("WatchdogSec", default="0"):
        yield Finding(
            "watchdog",
            "fail",
            "WatchdogSec: SGLang sends systemd no sign of life, and is killed at each end of it",
            "leave it out; SGLang has a watchdog of its own (--watchdog-timeout)",
            watchdog.where,
        )
    most = subject.setting("RuntimeMaxSec")
    if most is not None and not math.isinf(subject.seconds("RuntimeMaxSec", default="infinity")):
        yield Finding("runtime_max", "warn", f"RuntimeMaxSec={most.value}: it is ended while it "
                      "serves", "leave it out", most.where)  # fmt: skip


def logging(subject: Subject) -> Iterator[Finding]:
    key = "LogRateLimitIntervalSec"
    if subject.seconds(key, default="30s") and subject.value("LogRateLimitBurst") != "0":
        yield Finding(
            "log_rate_limit",
            "warn",
            "journald's rate limit drops lines of a crash, and says so nowhere in this unit's log",
            f"{key}=0",
            subject.where(key),
        )
    for key in ("StandardOutput", "StandardError"):
        value = subject.value(key)
        if value and not value.startswith(("journal", "inherit")):
            yield Finding(
                "output",
                "fail",
                f"{key}={value}: the journal has no line of the server's, so nobody can tell when "
                "it is ready or why it died",
                "leave it out: the journal",
                subject.where(key),
            )
    variables = [word for s in subject.text.all("Environment") for word in words(s.value)]
    names = {word.strip("\"'").partition("=")[0] for word in variables}
    if "PYTHONUNBUFFERED" not in names and " -u " not in f" {' '.join(subject.arguments)} ":
        yield Finding(
            "unbuffered",
            "warn",
            "without PYTHONUNBUFFERED the last lines before a crash may be lost in a buffer",
            "Environment=PYTHONUNBUFFERED=1",
        )


def overrides(subject: Subject) -> Iterator[Finding]:
    """What a drop-in that is not the inventory's has the last word in."""
    first: dict[tuple[str, str], str] = {}
    for setting in subject.text.settings:
        key = (setting.section, setting.key)
        before = first.setdefault(key, setting.value)
        foreign = setting.path.endswith(".conf") and setting.path not in subject.owned
        if (
            foreign
            and not _LISTS.fullmatch(setting.key)
            and setting.value
            and before != setting.value
        ):
            said = "" if setting.key == "ExecStart" else f" ({before} -> {setting.value})"
            yield Finding(
                "drop_in",
                "warn",
                f"a drop-in that is not the inventory's sets {setting.key}{said}",
                "take it into launch.drop_ins, or remove the file",
                setting.where,
            )


def on_the_host(subject: Subject) -> Iterator[Finding]:
    """What systemd says of the unit as it is."""
    shown = subject.properties
    if shown.get("NeedDaemonReload") == "yes":
        yield Finding("daemon_reload", "fail", "the files were edited and not reloaded: what runs "
                      "is another unit", "systemctl daemon-reload")  # fmt: skip
    state = shown.get("UnitFileState", "")
    if shown.get("LoadState") == "masked" or state.startswith("masked"):
        yield Finding("masked", "fail", "the unit is masked", "systemctl unmask")
    elif state in {"disabled", "linked", "static", "transient"} or state.endswith("-runtime"):
        yield Finding(
            "not_enabled",
            "warn",
            f"the unit is {state}: it does not start when the host boots",
            f"systemctl enable {subject.service.unit}; a static one has no [Install] to go by",
        )


RULES: Final[tuple[Callable[[Subject], Iterator[Finding]], ...]] = (
    restart, start_limit, stopping, starting, logging, overrides, on_the_host,
)  # fmt: skip
