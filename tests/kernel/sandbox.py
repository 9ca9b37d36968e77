"""Run a command for which a system call fails: a kernel without BPF, or one that forbids it.

    python -m tests.kernel.sandbox SYSCALL ERRNO COMMAND...

SYSCALL may be NAME or NAME:FIRST_ARGUMENT, and only such calls fail.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Sequence

# arch/x86/entry/syscalls/syscall_64.tbl
SYSCALLS = {"perf_event_open": 298, "bpf": 321}

_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_RETURN_ERRNO = 0x0005_0000
_RETURN_ALLOW = 0x7FFF_0000
# include/uapi/linux/bpf_common.h
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
# struct seccomp_data: the number of the call, and the low half of its first argument.
_NUMBER_AT, _ARGUMENT_AT = 0, 16


class _Filter(ctypes.Structure):
    """struct sock_fprog, include/uapi/linux/filter.h."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def deny(syscall: str, code: int) -> None:
    """Make a system call fail with the errno `code` from here on, in what this executes, too."""
    name, _, argument = syscall.partition(":")
    instructions = [
        (_LOAD_WORD, 0, 0, _NUMBER_AT),
        (_JUMP_IF_EQUAL, 0, 3, SYSCALLS[name]),
        (_LOAD_WORD, 0, 0, _ARGUMENT_AT),
        (_JUMP_IF_EQUAL, 0, 1 if argument else 0, int(argument or 0)),
        (_RETURN, 0, 0, _RETURN_ERRNO | code),
        (_RETURN, 0, 0, _RETURN_ALLOW),
    ]
    text = b"".join(struct.pack("<HBBI", *instruction) for instruction in instructions)
    program = _Filter(len(instructions), text)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "seccomp filter refused")


def main(arguments: Sequence[str]) -> None:
    syscall, code, *command = arguments
    deny(syscall, getattr(errno, code))
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
