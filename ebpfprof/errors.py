"""What can go wrong: the exceptions that a user sees, and the exit codes.

Each message is a sentence for the user that says what to do next. Only `main()` turns exceptions
into exit codes. Exceptions that one part of the code raises and catches are defined there.
"""

# The names say what is wrong; "Error" behind each would only lengthen them.
# ruff: noqa: N818

from enum import IntEnum
from typing import ClassVar, Self


class ExitCode(IntEnum):
    """The exit codes of the command, with their meaning in the help and in the docs.

    The numbers are an interface and never change.
    """

    meaning: str

    def __new__(cls, code: int, meaning: str = "") -> Self:
        """A member: its number and what it means."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "Success."
    FAILURE = 1, "Any other error."
    USAGE = 2, "The command line, the environment or a configuration file is wrong."
    NO_SUCH_PROCESS = 3, "No such process."
    PERMISSION_DENIED = 4, "Rights are missing."
    NOT_GO_PROGRAM = 5, "Not a Go program, or several Go runtimes and no choice."
    UNSUPPORTED_GO = 6, "The Go version is unknown or too old, or the compiler is not Go's own."
    UNSUPPORTED_TARGET = 7, "32-bit, another architecture, a thread, a kernel thread or a zombie."
    TARGET_GONE = 8, "The process ended or called exec before anything was recorded."
    OUTPUT_ERROR = 9, "The output cannot be written."
    KERNEL_UNSUPPORTED = 10, "The kernel lacks uprobes or BPF, is too old, or is locked down."
    BCC_MISSING = 11, "BCC is not installed."
    CORRUPT_BINARY = 12, "The executable is truncated or corrupt."
    ATTACH_FAILED = 13, "The kernel refused a probe."
    DEADLOCK_FOUND = 14, "doctor: a deadlock was found."
    FAULT_FOUND = 15, "explain: something is wrong with a process."
    COMMAND_NOT_RUNNABLE = 126, "run: the program cannot be executed."
    COMMAND_NOT_FOUND = 127, "run: there is no such program."
    ABORTED = 130, "Aborted: a second Ctrl-C, or one before anything was recorded."


INDENT = "    "
"""Before a command to copy, which has its own line."""

INSTALL_BCC = (
    "apt-get install python3-bpfcc",
    "dnf install python3-bcc",
)
"""How to install BCC on Debian and Ubuntu, and on Fedora and RHEL."""

SET_USER_ID = (
    "Python runs as a set-user-id program or with file capabilities. That is unsafe: its caller "
    "lacks these rights, but controls its environment. Remove the mode bits or capabilities from "
    "Python's file (chmod u-s,g-s; setcap -r), and use sudo."
)
"""Why ebpfprof refuses to run with rights that its caller lacks (PermissionDenied)."""


def to_type(*commands: str) -> str:
    """The end of a message: commands to copy, each on its own line, indented."""
    return "".join(f"\n{INDENT}{command}" for command in commands)


class EbpfprofError(Exception):
    """Any error that ebpfprof reports; the message is a sentence for the user."""

    exit_code: ClassVar[int] = ExitCode.FAILURE


class InvalidProfile(EbpfprofError):
    """Profile data that contradicts itself, or a file without a readable profile."""


class BadConfig(EbpfprofError):
    """A configuration file or an environment variable is wrong."""

    exit_code = ExitCode.USAGE


class NoSuchProcess(EbpfprofError):
    """No process has this pid."""

    exit_code = ExitCode.NO_SUCH_PROCESS


class PermissionDenied(EbpfprofError):
    """Neither root nor the necessary capabilities; the message names what is missing."""

    exit_code = ExitCode.PERMISSION_DENIED


class NotGoProgram(EbpfprofError):
    """The process runs no Go code, or has several Go runtimes.

    `what` says what it is instead, in words; "" if nothing is known.
    """

    exit_code = ExitCode.NOT_GO_PROGRAM

    def __init__(self, message: str, what: str = "", *, has_several: bool = False) -> None:
        super().__init__(message)
        self.what = what
        self.has_several = has_several


class NoSuchRuntime(EbpfprofError):
    """The process has no Go runtime of the name that --runtime gives."""

    exit_code = ExitCode.USAGE


class UnsupportedGo(EbpfprofError):
    """The Go version is unknown or too old, or it is another compiler's.

    `why` is the reason alone, printable.
    """

    exit_code = ExitCode.UNSUPPORTED_GO

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.why = why or message


class UnsupportedTarget(EbpfprofError):
    """32-bit, another architecture, a thread id, a kernel thread or a zombie."""

    exit_code = ExitCode.UNSUPPORTED_TARGET


class TargetGone(EbpfprofError):
    """The target ended, called exec, or its pid was reused before anything was recorded."""

    exit_code = ExitCode.TARGET_GONE


class RingError(EbpfprofError):
    """The folder of the agent's files is missing, unsafe, in use, or of another version."""


class TooManyFiles(EbpfprofError):
    """No more files can be opened; the message names the limit and how to raise it."""


class OutputError(EbpfprofError):
    """The output cannot be written; the message says where it is instead."""

    exit_code = ExitCode.OUTPUT_ERROR


class KernelUnsupported(EbpfprofError):
    """The kernel has no uprobes or no BPF, is too old, or is locked down."""

    exit_code = ExitCode.KERNEL_UNSUPPORTED


class BccMissing(EbpfprofError):
    """BCC's Python module cannot be imported."""

    exit_code = ExitCode.BCC_MISSING

    def __init__(
        self,
        message: str = (
            "BCC's Python module is missing. The PyPI package called bcc is something else. Make "
            "a virtual environment with --system-site-packages. To install BCC on Debian and "
            f"Ubuntu, or on Fedora:{to_type(*INSTALL_BCC)}"
        ),
    ) -> None:
        super().__init__(message)


class CorruptBinary(EbpfprofError):
    """The target's ELF file or its Go tables are truncated, corrupt or hostile."""

    exit_code = ExitCode.CORRUPT_BINARY


class AttachFailed(EbpfprofError):
    """The kernel refused a probe; the message names the function and the errno."""

    exit_code = ExitCode.ATTACH_FAILED


class DeadlockFound(EbpfprofError):
    """doctor found a deadlock, a lost wakeup, or a program in which no goroutine can run."""

    exit_code = ExitCode.DEADLOCK_FOUND


class FaultFound(EbpfprofError):
    """`explain` found something wrong. It is never raised: only its exit code is used."""

    exit_code = ExitCode.FAULT_FOUND


class CommandNotRunnable(EbpfprofError):
    """The program to start exists, but can't be executed."""

    exit_code = ExitCode.COMMAND_NOT_RUNNABLE


class CommandNotFound(EbpfprofError):
    """The program to start does not exist."""

    exit_code = ExitCode.COMMAND_NOT_FOUND


class Aborted(EbpfprofError):
    """The user aborted the command, with a second Ctrl-C."""

    exit_code = ExitCode.ABORTED
