"""What can go wrong: one tree of exceptions and one table of exit codes, both stable.

Each message is a sentence for the user that says what to do next.

EbpfprofError            1   anything else that failed
├── InvalidProfile       1   profile data that contradicts itself or cannot be read
├── LibraryMissing       1   a Python library that this part needs is not installed
├── NoAnswer             1   the executable is on a file system that does not answer
├── RingError            1   the agent's folder is missing, unsafe, in use, or of another version
├── TooManyFiles         1   the limit of open files is reached
├── BadConfig            2   a configuration file or environment variable is wrong
├── NoSuchProcess        3   no process has this pid
├── PermissionDenied     4   neither root nor the necessary capabilities
├── NotGoProgram         5   the process runs no Go code
├── UnsupportedGo        6   the Go version is unknown or too old
├── UnsupportedTarget    7   32-bit, another architecture, a thread id, a kernel thread, a zombie
├── TargetGone           8   the target ended or called exec, or its pid was reused, too early
├── OutputError          9   the output could not be written to where the user wants it
├── KernelUnsupported   10   no uprobes, no BPF, too old, or locked down
├── BccMissing          11   BCC's Python module is not installed
├── CorruptBinary       12   a truncated, corrupt or hostile ELF file or Go table
├── AttachFailed        13   the kernel refused a probe
├── DeadlockFound       14   doctor found a deadlock in a process, a certain or a likely one
├── CommandNotRunnable 126   the program to start can't be executed
├── CommandNotFound    127   the program to start does not exist
└── Aborted            130   a second Ctrl-C

Not exceptions of ours: 0 is success, 2 also a usage error (click's own).
"""

# The names say what is wrong; "Error" behind each would only lengthen them.
# ruff: noqa: N818

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """The exit codes of the command; the numbers are an interface and never change."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NO_SUCH_PROCESS = 3
    PERMISSION_DENIED = 4
    NOT_GO_PROGRAM = 5
    UNSUPPORTED_GO = 6
    UNSUPPORTED_TARGET = 7
    TARGET_GONE = 8
    OUTPUT_ERROR = 9
    KERNEL_UNSUPPORTED = 10
    BCC_MISSING = 11
    CORRUPT_BINARY = 12
    ATTACH_FAILED = 13
    DEADLOCK_FOUND = 14
    COMMAND_NOT_RUNNABLE = 126
    COMMAND_NOT_FOUND = 127
    ABORTED = 130


INDENT = "    "
"""Before a command that people may copy, which has a line of its own."""

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
"""Why we refuse to run with rights that our caller lacks (PermissionDenied)."""


def to_type(*commands: str) -> str:
    """Commands that people may copy, the end of a message: each on a line of its own, indented."""
    return "".join(f"\n{INDENT}{command}" for command in commands)


class EbpfprofError(Exception):
    """Any error that ebpfprof reports; the message is a sentence for the user."""

    exit_code: ClassVar[int] = ExitCode.FAILURE


class LibraryMissing(EbpfprofError):
    """A Python library that only a part of ebpfprof needs is not installed."""


class InvalidProfile(EbpfprofError):
    """Profile data that contradicts itself, or a file without a profile that we can read."""


class BadConfig(EbpfprofError):
    """A configuration file or an environment variable is wrong."""

    exit_code = ExitCode.USAGE


class NoSuchProcess(EbpfprofError):
    """No process has this pid."""

    exit_code = ExitCode.NO_SUCH_PROCESS


class PermissionDenied(EbpfprofError):
    """We are not root and lack capabilities; the message names what is missing."""

    exit_code = ExitCode.PERMISSION_DENIED


class NotGoProgram(EbpfprofError):
    """The process runs no Go code that we can find.

    `mapped` says in words which mapped file other than the executable is Go; "" if none is.
    """

    exit_code = ExitCode.NOT_GO_PROGRAM

    def __init__(self, message: str, mapped: str = "") -> None:
        super().__init__(message)
        self.mapped = mapped


class UnsupportedGo(EbpfprofError):
    """A Go program of a version that is unknown or too old; `why` is that alone, printable."""

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


class NoAnswer(EbpfprofError):
    """The target's executable is on a file system that does not answer or is gone."""


class RingError(EbpfprofError):
    """The folder of the agent's files is missing, unsafe, in use, or of another version."""


class TooManyFiles(EbpfprofError):
    """No more files can be opened; the message names the limit and how to raise it."""


class OutputError(EbpfprofError):
    """The output cannot be written to where the user wants it; the message says where it is."""

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
    """doctor found a deadlock, a lost wake, or a whole program asleep: certain, or likely."""

    exit_code = ExitCode.DEADLOCK_FOUND


class CommandNotRunnable(EbpfprofError):
    """The program to start exists, but can't be executed."""

    exit_code = ExitCode.COMMAND_NOT_RUNNABLE


class CommandNotFound(EbpfprofError):
    """The program to start does not exist."""

    exit_code = ExitCode.COMMAND_NOT_FOUND


class Aborted(EbpfprofError):
    """The user aborted the command, with a second Ctrl-C."""

    exit_code = ExitCode.ABORTED
