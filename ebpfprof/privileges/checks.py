"""Which rights this process has, checked before it does anything.

docs/trust.md says what each capability is for.
"""

import ctypes
import os
import shlex
import sys
from pathlib import Path

from ebpfprof.errors import SET_USER_ID, KernelUnsupported, PermissionDenied, to_type
from ebpfprof.privileges import capabilities
from ebpfprof.privileges.capabilities import NUMBERS

_AT_SECURE = 23  # include/uapi/linux/auxvec.h
_FIRST_USER_NAMESPACE = 0xEFFFFFFD  # include/linux/proc_ns.h, PROC_USER_INIT_INO

# CAP_SYS_ADMIN stands for both (bpf_capable and perfmon_capable, include/linux/capability.h).
TO_RECORD = ("CAP_BPF", "CAP_PERFMON")
# For processes of other users: their memory, executables, and /proc/PID/auxv, which has mode 0400.
_FOR_OTHERS = ("CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH")

_libc = ctypes.CDLL(None)

RECORDING = frozenset(
    {
        *TO_RECORD,
        *_FOR_OTHERS,
        "CAP_SYSLOG",  # names of the kernel's functions
        "CAP_CHECKPOINT_RESTORE",  # mapped files that were deleted or replaced (map_files)
        "CAP_SYS_NICE",  # looks at goroutines at the time that was drawn for them
    }
)
"""The capabilities that a recording uses."""
LOOKING = frozenset({*_FOR_OTHERS, "CAP_CHECKPOINT_RESTORE"})
"""The capabilities for looking up which programs the processes run."""
WRITING = frozenset({"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER"})
"""The capabilities for writing in other users' folders, and giving them the file."""


def effective_capabilities() -> frozenset[int]:
    """Numbers of the capabilities in force for this thread. Raises KernelUnsupported."""
    try:
        return capabilities.effective()
    except OSError as error:
        raise no_proc(error) from error


def missing_capabilities() -> list[str]:
    """Names of the capabilities for recording any process that are not in force."""
    held = effective_capabilities()
    needed = _FOR_OTHERS if may_put_perf_uprobes() else (*TO_RECORD, *_FOR_OTHERS)
    return [name for name in needed if NUMBERS[name] not in held]


def require_capabilities(*, needs_bpf: bool = True) -> None:
    """Raise PermissionDenied, with what is missing and what to type, unless we may use BPF.

    Without `needs_bpf`, only memory is read, and no capability is needed for processes of the user.
    Also raises it if our rights come from the mode or capabilities of our file: our environment is
    the caller's. Rights for processes of other users are checked when those are opened.
    """
    if _libc.getauxval(_AT_SECURE):
        raise PermissionDenied(SET_USER_ID)
    if not needs_bpf:
        return
    missing = missing_capabilities()
    if any(name in missing for name in TO_RECORD):
        raise PermissionDenied(
            f"This user may not trace processes: {_are_missing(missing)} {way_out()}"
        )
    if not in_first_user_namespace():
        raise PermissionDenied(
            "This is root in a user namespace only, which may not trace. Run ebpfprof as the "
            "machine's root, outside of the container."
        )


def may_put_perf_uprobes() -> bool:
    """Whether we may open perf events for uprobes on any kernel: with CAP_SYS_ADMIN."""
    return NUMBERS["CAP_SYS_ADMIN"] in effective_capabilities()


def not_yours(pid: int, what: str) -> PermissionDenied:
    """The error if the kernel does not let us open `what` (such as "its memory") of a process."""
    missing = missing_capabilities()
    why = f" {_are_missing(missing)}" if missing else ""
    return PermissionDenied(
        f"Process {pid} is not yours to trace: the kernel does not let this user open {what}."
        f"{why} {way_out()}"
    )


def no_proc(error: OSError) -> KernelUnsupported:
    """The error if /proc can't be read."""
    return KernelUnsupported(
        f"Processes can't be seen: /proc can't be read ({error.strerror}). Mount it: "
        "mount -t proc proc /proc"
    )


def way_out() -> str:
    """What to do about a missing right, with the command line as it was typed."""
    if os.geteuid() == 0:
        return (
            "This root is a container's or a sandbox's: run ebpfprof outside of it, or give the "
            "container --pid=host, these capabilities, and a seccomp profile that allows bpf and "
            "perf_event_open (docs/install.md has the command)."
        )
    return f"Type:{to_type(f'sudo {_typed()}')}"


def in_first_user_namespace() -> bool:
    """Whether this is the machine's own user namespace: capabilities of others don't count."""
    try:
        return os.stat("/proc/self/ns/user").st_ino == _FIRST_USER_NAMESPACE
    except OSError:  # a kernel without user namespaces
        return True


def _are_missing(names: list[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing."


def _typed() -> str:
    """The command line as it was typed, with a path that sudo finds, too."""
    program, *arguments = sys.argv
    if Path(program).name == "__main__.py":
        # Isolated (-I), as the installed command is: no code of a user's own is loaded as root.
        return shlex.join([sys.executable, "-I", "-m", "ebpfprof", *arguments])
    return shlex.join([str(Path(_FOLDER, program)), *arguments])


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return "."


_FOLDER = _folder()  # at the start, as the user's shell had it
