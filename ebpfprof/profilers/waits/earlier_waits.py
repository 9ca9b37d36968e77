"""Begins to record every event, with the goroutines that wait already: --earlier-waits.

It attaches the probes, tells the kernel who is parked, and begins to record once that is done.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import AttachFailed
from ebpfprof.goruntime.goroutines.parked import ParkedScanner
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.process.memory import UnreadableMemory
from symbolizer import GoTableError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profilers.waits.collector import WaitsCollector

_LEADS_NS: Final = (5_000_000, 50_000_000, 500_000_000, 2_000_000_000)
"""How long we try to read the goroutines, from one attempt to the next."""


def attach_with_earlier_waits(waits: WaitsCollector, index: int, go: GoTarget) -> int:
    """Attach the probes and record from then on; return when that began (CLOCK_MONOTONIC, ns).

    Waits that go on at that moment count with their time from then on. Raises AttachFailed, also
    where the goroutines can't be read in time, or TargetGone.
    """
    unread = AttachFailed(
        f"The goroutines of process {go.target.pid} that wait already could not be read: leave out "
        "--earlier-waits."
    )
    try:
        scanner = ParkedScanner(go, has_labels=waits.has_labels)
    except GoTableError as error:
        raise unread from error
    for lead_ns in _LEADS_NS:
        _seed(scanner, waits, None)  # makes the next one faster, which runs with attached probes
        waits.attach_probes(index, go)
        begin_ns = kernel_now_ns() + lead_ns
        waits.record_from(index, begin_ns)
        is_known = _seed(scanner, waits, index)
        left_ns = begin_ns - kernel_now_ns()
        if is_known and left_ns > 0:
            # The kernel records from begin_ns on: wait, so that the caller gets no earlier start.
            time.sleep(left_ns / 1e9)
            return begin_ns
        waits.pause(index)
        waits.tables.take(index)  # drops what was counted without all of them
    raise unread


def _seed(scanner: ParkedScanner, waits: WaitsCollector, index: int | None) -> bool:
    """Read the parked goroutines; False if that fails. Tell the kernel unless `index` is None."""
    try:
        parked = scanner.parked()
    except UnreadableMemory:
        return False
    if index is not None:
        for goroutine in parked.values():
            waits.seed(index, goroutine)
    return True
