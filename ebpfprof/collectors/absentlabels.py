"""Labels that are not in the target's memory when an event wants them: brings them for the next.

A program that passes a string on need never have looked at it: the page of its file that has it is
not mapped then, or memory was paged out. A BPF program can't wait until it is there, and the event
goes without its labels, which is counted. Reading it from outside is what a look by the program
itself would be (mm/gup.c, access_remote_vm: the page is brought, nothing is changed in it).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.memory import Memory

if TYPE_CHECKING:
    from ebpfprof.loader import Program
    from ebpfprof.target import Target

_ADDRESS_BITS: Final = 48  # bpf/labels.h


def bring_absent_labels(program: Program, targets: Mapping[int, Target]) -> None:
    """Read what the kernel could not read since the last time, of these targets by number.

    To be called now and then while it records. What can't be read by us either stays lost: it is
    no label, or the target has gone.
    """
    keys, sizes_bytes = program.read_hash("absent_labels")
    for key, size_bytes in zip(keys.tolist(), sizes_bytes.tolist(), strict=True):
        index, address = divmod(key, 1 << _ADDRESS_BITS)
        with suppress(EbpfprofError):
            if index in targets:
                with Memory(targets[index]) as memory:
                    memory.read(address, size_bytes)
    program.delete_rows("absent_labels", keys)
