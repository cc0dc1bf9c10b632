"""The one exception tree, and the exit status that each branch means.

::

    OpsctlError
    ├── UsageError            2   the command line or a configuration file is wrong
    │   └── InventoryError    2   … with the file, line and key
    ├── Refused               3   a precondition does not hold; nothing was changed
    │   ├── PatchError        3   a patch set is malformed or does not apply
    │   └── LabUnavailable    3   this machine cannot hold a lab
    ├── LockHeld              4   another deploy of this service is running
    └── Unreachable           5   no working conversation with the host
        ├── HostKeyUnknown    5
        ├── HostKeyChanged    5
        ├── HostKeyRevoked    5
        ├── AuthFailed        5
        └── HostProgramError  5   the host program failed; `remote_traceback` says where

A rollout that went wrong *after* its first change is not an exception but a result
(`opsctl.report.Report`) with exit 10, 11 or 12: there is always something to say about it.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_OK = 0
EXIT_USAGE = 2
EXIT_REFUSED = 3
EXIT_LOCKED = 4
EXIT_UNREACHABLE = 5
EXIT_ROLLED_BACK = 10
EXIT_NOT_RESTORED = 11
EXIT_INCONCLUSIVE = 12
EXIT_INTERRUPTED = 130


class OpsctlError(Exception):
    """One clear message with its cause, and what to do about it.

    `message` says what is wrong and why, in one sentence; `remedy` says what to do,
    ideally as a command; `code` is a stable snake_case name for scripts.
    """

    exit_code: ClassVar[int] = EXIT_REFUSED
    default_code: ClassVar[str] = "error"

    def __init__(self, message: str, *, remedy: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.code = code or self.default_code


class UsageError(OpsctlError):
    exit_code = EXIT_USAGE
    default_code = "usage"


class InventoryError(UsageError):
    default_code = "inventory_invalid"


class Refused(OpsctlError):
    exit_code = EXIT_REFUSED
    default_code = "refused"


class PatchError(Refused):
    default_code = "patch_invalid"


class LabUnavailable(Refused):
    default_code = "lab_unavailable"


class LockHeld(OpsctlError):
    exit_code = EXIT_LOCKED
    default_code = "lock_held"


class Unreachable(OpsctlError):
    exit_code = EXIT_UNREACHABLE
    default_code = "unreachable"


class HostKeyUnknown(Unreachable):
    default_code = "host_key_unknown"


class HostKeyChanged(Unreachable):
    default_code = "host_key_changed"


class HostKeyRevoked(Unreachable):
    default_code = "host_key_revoked"


class AuthFailed(Unreachable):
    default_code = "auth_failed"


class HostProgramError(Unreachable):
    default_code = "host_program"

    def __init__(
        self, message: str, *, remedy: str = "", code: str = "", remote_traceback: str = ""
    ) -> None:
        super().__init__(message, remedy=remedy, code=code)
        self.remote_traceback = remote_traceback
