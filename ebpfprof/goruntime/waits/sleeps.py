"""When sleeping goroutines wake (runtime/time.go, timeSleep)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.records import record

if TYPE_CHECKING:
    from ebpfprof.goruntime.goroutines.all_goroutines import Words
    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

_TIMER: Final = (("when", "nextwhen", "<i8"),)


def ends_of_sleeps(
    memory: Memory, layout: RuntimeLayout, sleeping: Mapping[int, Words]
) -> dict[int, int]:
    """When the goroutines in time.Sleep wake, by the address of the runtime.g.

    Times are ns of the target's own CLOCK_MONOTONIC, which a time namespace may have set.
    Go 1.23 and later have it in runtime.g (sleepWhen), older ones in its timer, where nextwhen is
    the end of the last sleep, however often the timer was moved. Goroutines with a clock of their
    own (testing/synctest) are left out. Raises TargetGone.
    """
    own = {address: words for address, words in sleeping.items() if not words.bubble}
    if layout.has("g", "sleepWhen"):
        return {address: sleep.sleep_when for address, sleep in own.items() if sleep.sleep_when > 0}
    timed = {address: words.timer for address, words in own.items() if words.timer}
    records = memory.read_records(
        np.array(list(timed.values()), np.uint64), record(layout, "timer", _TIMER)
    )
    whens = zip(timed, records["when"].tolist(), strict=True)
    return {address: when for address, when in whens if when > 0}
