"""What the kernel lets this process do, asked before anything is attempted."""

import os
import re
import shlex
import sys
from pathlib import Path

from ebpfprof.errors import KernelUnsupported, PermissionDenied

# include/uapi/linux/capability.h
_CAP_DAC_READ_SEARCH = 2
_CAP_SYS_PTRACE = 19
_CAP_SYS_ADMIN = 21

_FIRST_USER_NAMESPACE = 0xEFFFFFFD  # include/linux/proc_ns.h, PROC_USER_INIT_INO

_NEEDED = {
    # Covers CAP_BPF and CAP_PERFMON; for uprobes the latter is not enough (seen on Linux 6.18).
    _CAP_SYS_ADMIN: "CAP_SYS_ADMIN",
    _CAP_SYS_PTRACE: "CAP_SYS_PTRACE",
    _CAP_DAC_READ_SEARCH: "CAP_DAC_READ_SEARCH",
}


def effective_capabilities() -> set[int]:
    """Numbers of the capabilities in force for this process. Raises KernelUnsupported."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError as error:
        raise no_proc(error) from error
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    mask = int(match[1], 16) if match else 0
    return {bit for bit in range(64) if mask >> bit & 1}


def missing_capabilities() -> list[str]:
    """Names of the capabilities that are needed and not in force."""
    held = effective_capabilities()
    return [name for capability, name in _NEEDED.items() if capability not in held]


def require_capabilities() -> None:
    """Raise PermissionDenied, naming what is missing and what to type, unless all is there."""
    missing = missing_capabilities()
    if missing:
        raise PermissionDenied(
            f"This user may not trace other processes: {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing. {way_out()}"
        )
    if not in_first_user_namespace():
        raise PermissionDenied(
            "This is root in a user namespace only, which may not trace. Run ebpfprof as root of "
            "the machine, outside of the container."
        )


def no_proc(error: OSError) -> KernelUnsupported:
    """What is wrong where /proc is not there."""
    return KernelUnsupported(
        f"Processes can't be seen: /proc can't be read ({error.strerror}). Mount it: "
        "mount -t proc proc /proc"
    )


def way_out() -> str:
    """What to do about a missing right, with what was typed."""
    if os.geteuid() == 0:
        return (
            "This root is a container's or a sandbox's: run ebpfprof outside of it, or give the "
            "container these capabilities (docker run --privileged --pid=host)."
        )
    return f"Type: sudo {_typed()}"


def in_first_user_namespace() -> bool:
    """Whether this is the machine's own user namespace: only there the capabilities count."""
    try:
        return os.stat("/proc/self/ns/user").st_ino == _FIRST_USER_NAMESPACE
    except OSError:  # a kernel without user namespaces
        return True


def _typed() -> str:
    """The command line as it was typed, with a path that sudo finds, too."""
    program, *arguments = sys.argv
    if Path(program).name == "__main__.py":
        return shlex.join([sys.executable, "-m", "ebpfprof", *arguments])
    return shlex.join([str(Path(program).absolute()), *arguments])
