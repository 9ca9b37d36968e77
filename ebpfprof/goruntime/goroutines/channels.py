"""The channels for which parked goroutines wait, read from the target's memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.records import record
from ebpfprof.profile.goroutines import Channel

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

_MAX_CASES: Final = 64  # of a select that we read
_SUDOG: Final = (("g", "g", "<u8"), ("c", "c", "<u8"), ("next", "waitlink", "<u8"))
_HCHAN: Final = (
    ("length", "qcount", "<u8"),
    ("capacity", "dataqsiz", "<u8"),
    ("closed", "closed", "<u4"),
)


def channels_of(
    memory: Memory, layout: RuntimeLayout, waiting: Mapping[int, int]
) -> dict[int, tuple[Channel, ...]]:
    """The channels of each goroutine, by the address of its runtime.g.

    `waiting` has g.waiting by that address: the first of its runtime.sudogs, one for each channel,
    linked by waitlink (runtime/chan.go, chansend and chanrecv; select.go, selectgo; Go 1.19 to
    1.27). A sudog of another goroutine is left out: the goroutine moved meanwhile. Raises
    TargetGone.
    """
    owners = np.array(list(waiting), np.uint64)
    sudogs = np.array(list(waiting.values()), np.uint64)
    by_owner = defaultdict[int, list[int]](list)
    kind = record(layout, "sudog", _SUDOG)
    for _ in range(_MAX_CASES):
        is_one = sudogs != 0
        owners, sudogs = owners[is_one], sudogs[is_one]
        if not len(sudogs):
            break
        records = memory.read_records(sudogs, kind)
        is_own = (records["g"] == owners) & (records["c"] != 0)
        owners, records = owners[is_own], records[is_own]
        for owner, channel in zip(owners.tolist(), records["c"].tolist(), strict=True):
            by_owner[owner].append(channel)
        sudogs = records["next"].copy()
    channels = _channels(
        memory, layout, sorted({address for row in by_owner.values() for address in row})
    )
    return {
        owner: tuple(channels[address] for address in row if address in channels)
        for owner, row in by_owner.items()
    }


def _channels(memory: Memory, layout: RuntimeLayout, addresses: list[int]) -> dict[int, Channel]:
    if not addresses:
        return {}
    places: npt.NDArray[np.uint64] = np.array(addresses, np.uint64)
    records = memory.read_records(places, record(layout, "hchan", _HCHAN))
    return {
        address: Channel(address, length, capacity, bool(closed))
        for address, length, capacity, closed in zip(
            addresses,
            records["length"].tolist(),
            records["capacity"].tolist(),
            records["closed"].tolist(),
            strict=True,
        )
        if length <= capacity
    }
