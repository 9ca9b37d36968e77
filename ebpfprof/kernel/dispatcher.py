"""One BPF program for all probes of a process: it calls the function of the probe that was passed.

The kernel takes a grace period of about 0.03 s to remove each link, and a link has one program.
With one program there is one link, in one process (ebpfprof.kernel.held_probes), in place of one
for each function. To call a function takes a few nanoseconds: it is a tail call.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Final

from ebpfprof.kernel import syscalls, uprobes
from ebpfprof.system.closing import Closing

NAME: Final = "on_probe"
_NUMBER_SHIFT: Final = 32
"""Of the number of a function in an attach cookie; the functions themselves use the lower bits."""
# r6 = r1; r0 = bpf_get_attach_cookie(r1); r3 = r0 >> 32; r1 = r6; r2 = the map; and then
# bpf_tail_call(r1, r2, r3), which returns only if there is no such function; r0 = 0; exit
_BEFORE_MAP: Final = "bf16000000000000 85000000ae000000 bf03000000000000 7703000020000000"
_BEHIND_MAP: Final = "850000000c000000 b700000000000000 9500000000000000"


class Dispatcher(Closing):
    """The program, loaded for links, with the loaded functions that it calls."""

    def __init__(self, functions: Sequence[int], license: str) -> None:
        """`functions` are file descriptors of programs for links. Raises OSError."""
        self._map_fd = syscalls.create_map(
            syscalls.MAP_TYPE_PROG_ARRAY, 4, 4, len(functions), name="functions"
        )
        self.fd = -1
        """The file descriptor of the program."""
        try:
            for number, fd in enumerate(functions):
                key, value = ctypes.c_uint32(number), ctypes.c_uint32(fd)
                syscalls.update_element(
                    self._map_fd, ctypes.addressof(key), ctypes.addressof(value)
                )
            self.fd = syscalls.load_program(
                "kprobe",
                _code(self._map_fd),
                attach_type=uprobes.attach_type(uses_links=True),
                name=NAME,
                license=license,
            )
        except BaseException:  # also Ctrl-C: no file may stay open
            self.close()
            raise

    def close(self) -> None:
        """Close it: probes that are still there call nothing any more. May be called twice."""
        for fd in (self.fd, self._map_fd):
            if fd >= 0:
                os.close(fd)
        self.fd = self._map_fd = -1


def cookie(number: int, own: int) -> int:
    """The attach cookie at a probe for function `number`, which itself reads `own` (32 bits)."""
    return number << _NUMBER_SHIFT | own


def _code(map_fd: int) -> bytes:
    load_map = bytes.fromhex("1812 0000") + map_fd.to_bytes(4, "little") + bytes(8)
    more = bytes.fromhex("bf61000000000000")  # r1 = r6
    return bytes.fromhex(_BEFORE_MAP) + more + load_map + bytes.fromhex(_BEHIND_MAP)
