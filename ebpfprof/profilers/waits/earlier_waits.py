"""Begins to record every event, with the goroutines that wait already: --earlier-waits.

As a window does, it attaches the probes, tells the kernel who is parked, and begins once that is
done.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import AttachFailed
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.profilers.waits.collector import FOREVER_NS
from ebpfprof.profilers.waits.window_seeds import WindowSeeds

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
    seeds = WindowSeeds(waits, index, go)
    for lead_ns in _LEADS_NS:
        seeds.look()  # makes seed() faster, which runs with attached probes
        waits.attach_probes(index, go)
        begin_ns = kernel_now_ns() + lead_ns
        waits.open_window(index, begin_ns, FOREVER_NS)
        is_known = seeds.seed()
        left_ns = begin_ns - kernel_now_ns()
        if is_known and left_ns > 0:
            time.sleep(left_ns / 1e9)  # then the window opens
            return begin_ns
        waits.close_window(index)
        waits.tables.take(index)  # drops what was counted without all of them
    raise AttachFailed(
        f"The goroutines of process {go.target.pid} that wait already could not be read: leave out "
        "--earlier-waits."
    )
