"""Which file a goroutine in "IO wait" waits for.

The runtime registers each file with epoll, and gives epoll the address of its runtime.pollDesc
(runtime/netpoll_epoll.go, netpollopen). The kernel shows these data in /proc/PID/fdinfo. A pollDesc
has the goroutines that wait to read and to write (runtime/netpoll.go, pollDesc.rg and wg, Go 1.19
to 1.27).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.records import record
from ebpfprof.profile.waiting_for import FileWait

if TYPE_CHECKING:
    from ebpfprof.process.descriptors import Descriptors
    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

_POLL_DESC: Final = (("fd", "fd", "<u8"), ("reader", "rg", "<u8"), ("writer", "wg", "<u8"))
_MAX_POLLED: Final = 1 << 20


def file_waits(
    memory: Memory, layout: RuntimeLayout, descriptors: Descriptors, waiting: Collection[int]
) -> dict[int, FileWait]:
    """What each of these goroutines waits for, by the address of its runtime.g.

    A goroutine that moved meanwhile is missing, or waits for the result. An epoll that is not the
    runtime's has data that are no pollDesc of the descriptor. Raises TargetGone.
    """
    wanted = set(waiting)
    by_goroutine: dict[int, tuple[int, bool]] = {}
    for polled in descriptors.polled() if wanted else ():
        by_goroutine |= _waits(memory, layout, polled, wanted)
        if by_goroutine:  # the runtime has one epoll
            break
    files = descriptors.files({fd for fd, _ in by_goroutine.values()})
    return {
        address: FileWait(files[fd], is_write)
        for address, (fd, is_write) in by_goroutine.items()
        if fd in files
    }


def _waits(
    memory: Memory, layout: RuntimeLayout, polled: list[tuple[int, int]], wanted: set[int]
) -> dict[int, tuple[int, bool]]:
    """The descriptor for which each goroutine waits, and whether it waits to write."""
    right, left = layout.poll_data_shifts
    fds = np.array([fd for fd, _ in polled[:_MAX_POLLED]], np.uint64)
    data = np.array([word for _, word in polled[:_MAX_POLLED]], np.uint64)
    # Left shifts lose the highest bits, as those of Go do.
    addresses = ((data.astype(np.int64) >> right) << left).astype(np.uint64)
    records = memory.read_records(addresses, record(layout, "pollDesc", _POLL_DESC))
    by_goroutine: dict[int, tuple[int, bool]] = {}
    is_right = records["fd"] == fds
    rows = zip(
        fds[is_right].tolist(),
        records["reader"][is_right].tolist(),
        records["writer"][is_right].tolist(),
        strict=True,
    )
    for fd, reader, writer in rows:
        if reader in wanted:
            by_goroutine[reader] = fd, False
        if writer in wanted:
            by_goroutine[writer] = fd, True
    return by_goroutine
