"""The packets of a trace of Perfetto, and its tracks, each described before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import printable
from ebpfprof.export.timelines.perfetto.names import InternedNames
from ebpfprof.export.timelines.perfetto.schema import message_class
from ebpfprof.timeline.model import UNNAMED

if TYPE_CHECKING:
    from ebpfprof.export.proto_messages import ProtoMessage
    from ebpfprof.timeline.model import Timeline

_SEQUENCE: Final = 1
_CLEARED, _NEEDED = 1, 2  # what the interned names are before a packet
_MONOTONIC, _BOOTTIME, _REALTIME = 3, 6, 1
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
_EXPLICIT: Final = 3
_KINDS: Final = (
    *("process", "group", "goroutine", "p", "thread", "runtime", "counter"),
    *("regions", "task"),
)
_KIND_SHIFT: Final = 56
_GROUPS: Final = ("Goroutines", "Ps: processors of Go", "Runtime", "Counts", "Tasks")
GOROUTINES, PS, RUNTIME, COUNTS, TASKS = range(5)
_OWN_GROUPS: Final = 16  # of goroutines, behind those


def uuid(kind: str, number: int = 0) -> int:
    """The number of a track: those of another kind have other high bits."""
    return (_KINDS.index(kind) + 1) << _KIND_SHIFT | (number & (1 << _KIND_SHIFT) - 1)


class TracePackets:
    """The packets of a timeline that were not taken yet."""

    def __init__(self, timeline: Timeline) -> None:
        self.names = InternedNames(timeline)
        self._timeline = timeline
        self._trace = message_class("Trace")()
        self._known: set[int] = set()  # tracks that were described
        self._begin()

    def __len__(self) -> int:
        return len(self._trace.packet)

    def take(self) -> bytes:
        """The packets since the last call."""
        data: bytes = self._trace.SerializeToString()
        self._trace.Clear()
        return data

    def slice(
        self, begin_ns: int, end_ns: int, track: int, name: str, stack: int = 0
    ) -> ProtoMessage:
        """A span of time on a track; `stack` is a key of Timeline.stacks. Returns its begin."""
        event = self.named(begin_ns, BEGIN, track, name, stack)
        self.event(end_ns, END, track)
        return event

    def named(self, at_ns: int, kind: int, track: int, name: str, stack: int = 0) -> ProtoMessage:
        """An event with a name, and the stack with that key."""
        name_iid, stack_iid = self.names.name(name), self.names.stack(stack)
        event = self.event(at_ns, kind, track)
        self.names.take_new(self._trace.packet[-1])
        event.name_iid = name_iid
        if stack_iid:
            event.callstack_iid = stack_iid
        return event

    def event(self, at_ns: int, kind: int, track: int) -> ProtoMessage:
        """An event on a track, which is described already."""
        packet = self._packet()
        packet.timestamp = at_ns
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        return event

    def describe(self, track: int, name: str, group: int, rank: int = 0, unit: str = "") -> int:
        """The track, described: in one of the groups; with a `unit` it is a counter."""
        if track not in self._known:
            self._describe(track, name, uuid("group", group), rank, unit)
        return track

    def goroutine(self, goid: int) -> int:
        """The track of a goroutine, in the group of its function."""
        track = uuid("goroutine", goid)
        if track not in self._known:
            goroutine = self._timeline.goroutines.get(goid)
            name = printable(goroutine.name) if goroutine else UNNAMED
            number = _OWN_GROUPS + self.names.name(name)
            rank = 1 if goroutine and goroutine.is_system else 0
            group = self.describe(uuid("group", number), name, GOROUTINES, rank)
            self._describe(track, self.title(goid), group)
        return track

    def thread(self, tid: int) -> int:
        """The track of a thread."""
        track = uuid("thread", tid)
        if track not in self._known:
            self._known.add(track)
            described = self._packet().track_descriptor
            described.uuid, described.parent_uuid = track, uuid("process")
            described.thread.pid, described.thread.tid = self._timeline.pid, tid
            name = self._timeline.threads.get(tid, "")
            described.thread.thread_name = (name or f"thread {tid}").encode(errors="replace")
        return track

    def title(self, goid: int) -> str:
        """What a goroutine is called."""
        goroutine = self._timeline.goroutines.get(goid)
        return f"G{goid} {printable(goroutine.name)}" if goroutine else f"G{goid}"

    def _begin(self) -> None:
        timeline = self._timeline
        first = self._packet()
        first.sequence_flags = _CLEARED
        first.trace_packet_defaults.timestamp_clock_id = _MONOTONIC
        clocks = self._packet().clock_snapshot
        # Nothing here has the time of boot: that it is monotonic's keeps the page from guessing.
        for clock, at_ns in (
            (_MONOTONIC, timeline.begin_ns),
            (_BOOTTIME, timeline.begin_ns),
            (_REALTIME, timeline.begin_unix_ns),
        ):
            clocks.clocks.add(clock_id=clock, timestamp=at_ns)
        clocks.primary_trace_clock = _MONOTONIC
        process = self._packet().track_descriptor
        process.uuid = uuid("process")
        process.process.pid = timeline.pid
        process.process.process_name = timeline.command.encode(errors="replace")
        process.child_ordering = _EXPLICIT
        for number, name in enumerate(_GROUPS):
            self._describe(uuid("group", number), name, uuid("process"), number)

    def _describe(self, track: int, name: str, parent: int, rank: int = 0, unit: str = "") -> None:
        self._known.add(track)
        described = self._packet().track_descriptor
        described.uuid, described.parent_uuid = track, parent
        described.name, described.sibling_order_rank = name.encode(errors="replace"), rank
        if unit:
            described.counter.unit_name = unit.encode()

    def _packet(self) -> ProtoMessage:
        packet = self._trace.packet.add(trusted_packet_sequence_id=_SEQUENCE)
        packet.sequence_flags = _NEEDED
        return packet
