"""What can wake goroutines that wait for channels or sleep: timers, signals, other goroutines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.goroutines.fields import IDENTITY, g_record, waits_in
from ebpfprof.goruntime.records import record
from ebpfprof.goruntime.waits.timers import Timer, TimerReader
from ebpfprof.process.memory import UnreadableMemory

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory

_MAX_CASES: Final = 64  # of a select
_MAX_TYPES: Final = 4096
_G: Final = (*IDENTITY, "waiting", "timer", "sleep_when")
_SUDOG: Final = (("g", "g", "<u8"), ("c", "c", "<u8"), ("next", "waitlink", "<u8"))
_HCHAN: Final = (
    ("type", "elemtype", "<u8"),
    ("receivers", "recvq.first", "<u8"),
    ("senders", "sendq.first", "<u8"),
)
# internal/abi/type.go, Type and InterfaceType (runtime/type.go before Go 1.21): Size_ at 0, Kind_
# at 23; behind the Type of 48 bytes the package, a pointer to a name, and the slice of methods.
_TYPE: Final = np.dtype(
    {
        "names": ["size", "kind", "package", "methods"],
        "formats": ["<u8", "u1", "<u8", "<u8"],
        "offsets": [0, 23, 48, 64],
        "itemsize": 72,
    }
)
_KIND_MASK: Final = 0x1F
_INTERFACE: Final = 20
# os.Signal is the only interface of package os with two methods whose values one sends.
_OF_SIGNAL: Final = (16, 2)
_PACKAGE_OS: Final = b"\x02os"  # behind a byte of flags: the length, then the text


class WaitCause(NamedTuple):
    """What can wake a goroutine from one wait, the one with `wait` (see fields.wait_of).

    `ends_ns` is when the first of its timers fires (CLOCK_MONOTONIC), 0 without one; `period_ns` is
    the period of that timer, 0 if it fires once. `others`: other goroutines can wake it, or that is
    not known. `sends`: one of its channels may be one that it sends to.
    """

    wait: int
    ends_ns: int = 0
    period_ns: int = 0
    signals: bool = False
    others: bool = False
    sends: bool = False


class CauseReader:
    """Reads what can wake the goroutines of one target."""

    def __init__(self, go: GoTarget, memory: Memory) -> None:
        layout = go.binary.layout
        self._memory, self._timers = memory, TimerReader(go, memory)
        self._g = g_record(layout, *_G)
        self._sudog, self._hchan = record(layout, "sudog", _SUDOG), record(layout, "hchan", _HCHAN)
        self._sleep_ends = layout.has("g", "sleepWhen")
        if not self._sleep_ends:
            self._sleep = record(layout, "timer", (("when", "nextwhen", "<i8"),))
        self._sleeps = layout.wait_reasons["Sleep"]
        self._is_signal: dict[int, bool] = {}

    def read(self, addresses: Iterable[int]) -> dict[int, WaitCause]:
        """The causes by the address of the runtime.g.

        Those that moved while they were read are left out. Raises TargetGone.
        """
        places = np.array(list(addresses), np.uint64)
        before = self._memory.read_records(places, self._g)
        channels = self._channels(places, before["waiting"])
        kinds = self._memory.read_records(
            np.array(sorted({at for row in channels for at in row}), np.uint64), self._hchan
        )
        known = dict(zip(sorted({at for row in channels for at in row}), kinds, strict=True))
        timers = self._timers.by_channel() if known else {}
        ends = self._ends_of_sleeps(before)
        after = self._memory.read_records(places, self._g)
        waits = waits_in(before)
        is_same = (waits == waits_in(after)) & (before["waiting"] == after["waiting"])
        causes = {}
        for row in np.flatnonzero(is_same).tolist():
            address, wait = int(places[row]), int(waits[row])
            if before[row]["reason"] == self._sleeps:
                end_ns = ends[row]
                causes[address] = WaitCause(wait, max(end_ns, 0), others=end_ns <= 0)
            else:
                causes[address] = self._of_channels(wait, channels[row], known, timers)
        return causes

    def _of_channels(
        self, wait: int, channels: list[int], known: dict[int, Any], timers: dict[int, Timer]
    ) -> WaitCause:
        pending = [timers[at] for at in channels if at in timers]
        first = min(pending, default=Timer(0, 0))
        left = [at for at in channels if at not in timers]
        signals = [at for at in left if self._is_of_signals(int(known[at]["type"]))]
        return WaitCause(
            wait,
            first.when_ns,
            first.period_ns,
            signals=bool(signals),
            others=len(signals) < len(left) or not channels or len(channels) >= _MAX_CASES,
            # Of the two queues of a channel one is empty, unless a goroutine is in both.
            sends=any(known[at]["senders"] for at in channels),
        )

    def _channels(
        self, places: npt.NDArray[np.uint64], sudogs: npt.NDArray[np.uint64]
    ) -> list[list[int]]:
        """The channels that each goroutine waits for: see channels.channels_of."""
        channels: list[list[int]] = [[] for _ in range(len(places))]
        rows = np.arange(len(places))
        for _ in range(_MAX_CASES):
            is_one = sudogs != 0
            rows, sudogs = rows[is_one], sudogs[is_one]
            if not len(sudogs):
                break
            records = self._memory.read_records(sudogs, self._sudog)
            is_own = (records["g"] == places[rows]) & (records["c"] != 0)
            rows, records = rows[is_own], records[is_own]
            for row, channel in zip(rows.tolist(), records["c"].tolist(), strict=True):
                channels[row].append(channel)
            sudogs = records["next"].copy()
        return channels

    def _ends_of_sleeps(self, heads: npt.NDArray[Any]) -> list[int]:
        if self._sleep_ends:
            return [int(head) for head in heads["sleep_when"]]
        records = self._memory.read_records(heads["timer"].copy(), self._sleep)
        return [int(record) for record in records["when"]]

    def _is_of_signals(self, kind: int) -> bool:
        """Whether the elements of a channel are of type os.Signal."""
        if kind not in self._is_signal:
            if len(self._is_signal) >= _MAX_TYPES:
                self._is_signal.clear()
            self._is_signal[kind] = self._reads_as_signal(kind)
        return self._is_signal[kind]

    def _reads_as_signal(self, kind: int) -> bool:
        (type_,) = self._memory.read_records(np.array([kind], np.uint64), _TYPE)
        if type_["kind"] & _KIND_MASK != _INTERFACE:
            return False
        if (int(type_["size"]), int(type_["methods"])) != _OF_SIGNAL:
            return False
        try:
            return self._memory.read(int(type_["package"]) + 1, 3) == _PACKAGE_OS
        except UnreadableMemory:
            return False
