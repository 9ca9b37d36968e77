"""The format of Perfetto (ui.perfetto.dev): tracks of goroutines, Ps and threads, wakes as flows.

States are slices, not state tracks, which older versions of its page do not draw. All times are of
CLOCK_MONOTONIC; a snapshot of the clocks tells the time of day.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import printable
from ebpfprof.export.proto_messages import Messages, ProtoPackage
from ebpfprof.timeline.spans import RUNNABLE, RUNNING, STATES, SYSCALL, WAITING, Span, spans
from ebpfprof.timeline.steps import Step, StepKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ebpfprof.export.proto_messages import ProtoMessage
    from ebpfprof.timeline.model import Call, Timeline

# Source of the numbers: github.com/google/perfetto, protos/perfetto/trace.
_MESSAGES: Final[Messages] = {
    "Trace": {"packet": (1, "*TracePacket")},
    "TracePacket": {
        "clock_snapshot": (6, "ClockSnapshot"),
        "timestamp": (8, "uint64"),
        "trusted_packet_sequence_id": (10, "uint32"),
        "track_event": (11, "TrackEvent"),
        "interned_data": (12, "InternedData"),
        "sequence_flags": (13, "uint32"),
        "trace_packet_defaults": (59, "TracePacketDefaults"),
        "track_descriptor": (60, "TrackDescriptor"),
    },
    "TracePacketDefaults": {"timestamp_clock_id": (58, "uint32")},
    "ClockSnapshot": {"clocks": (1, "*Clock"), "primary_trace_clock": (2, "int32")},
    "Clock": {"clock_id": (1, "uint32"), "timestamp": (2, "uint64")},
    "TrackDescriptor": {
        "uuid": (1, "uint64"),
        "name": (2, "bytes"),
        "process": (3, "ProcessDescriptor"),
        "thread": (4, "ThreadDescriptor"),
        "parent_uuid": (5, "uint64"),
        "counter": (8, "CounterDescriptor"),
        "child_ordering": (11, "int32"),
        "sibling_order_rank": (12, "int32"),
    },
    "ProcessDescriptor": {"pid": (1, "int32"), "process_name": (6, "bytes")},
    "ThreadDescriptor": {"pid": (1, "int32"), "tid": (2, "int32"), "thread_name": (5, "bytes")},
    "CounterDescriptor": {"unit_name": (6, "bytes")},
    "TrackEvent": {
        "debug_annotations": (4, "*DebugAnnotation"),
        "type": (9, "int32"),
        "name_iid": (10, "uint64"),
        "track_uuid": (11, "uint64"),
        "counter_value": (30, "int64"),
        "flow_ids": (47, "*fixed64"),
        "terminating_flow_ids": (48, "*fixed64"),
        "callstack_iid": (56, "uint64"),
    },
    "DebugAnnotation": {
        "uint_value": (3, "uint64"),
        "string_value": (6, "bytes"),
        "name": (10, "bytes"),
    },
    "InternedData": {
        "event_names": (2, "*EventName"),
        "function_names": (5, "*InternedString"),
        "frames": (6, "*Frame"),
        "callstacks": (7, "*Callstack"),
        "source_paths": (18, "*InternedString"),
    },
    "EventName": {"iid": (1, "uint64"), "name": (2, "bytes")},
    "InternedString": {"iid": (1, "uint64"), "str": (2, "bytes")},
    "Frame": {
        "iid": (1, "uint64"),
        "function_name_id": (2, "uint64"),
        "rel_pc": (4, "uint64"),
        "source_path_iid": (5, "uint64"),
        "line_number": (6, "uint32"),
    },
    "Callstack": {"iid": (1, "uint64"), "frame_ids": (2, "*uint64")},
}
_SEQUENCE: Final = 1
_CLEARED, _NEEDED = 1, 2  # what the interned names are before a packet
_MONOTONIC, _BOOTTIME, _REALTIME = 3, 6, 1
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
_EXPLICIT: Final = 3
_AT_ONCE: Final = 512
_COUNTED_EVERY_NS: Final = 1_000_000
_KINDS: Final = ("process", "group", "goroutine", "p", "thread", "runtime", "counter")
_KIND_SHIFT: Final = 56
_WAKES: Final = "wakes"


def encode(timeline: Timeline) -> bytes:
    """The timeline as a trace of Perfetto."""
    return b"".join(parts(timeline))


def parts(timeline: Timeline) -> Iterator[bytes]:
    """The same in pieces."""
    yield from _Encoder(timeline).pieces()


@cache
def _package() -> ProtoPackage:
    return ProtoPackage("ebpfprof.perfetto", _MESSAGES, syntax="proto2")


def _uuid(kind: str, number: int = 0) -> int:
    """Tracks of the same kind have other numbers; of another kind other high bits."""
    return (_KINDS.index(kind) + 1) << _KIND_SHIFT | (number & (1 << _KIND_SHIFT) - 1)


class _Interned:
    """Names, frames and stacks, each with a number; those not written yet go into a packet."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._ids: dict[str, dict[Any, int]] = defaultdict(dict)
        self._stacks: dict[int, int] = {}
        self._new = _package().message_class("InternedData")()

    def name(self, text: str) -> int:
        iid, is_new = self._id("name", text)
        if is_new:
            self._new.event_names.add(iid=iid, name=text.encode(errors="replace"))
        return iid

    def stack(self, key: int) -> int:
        """Its number; 0 if there is no such stack."""
        if key not in self._stacks:
            calls = self._timeline.stacks.get(key, ())
            self._stacks[key] = self._callstack(calls) if calls else 0
        return self._stacks[key]

    def take_new(self, packet: ProtoMessage) -> None:
        if self._new.ByteSize():
            packet.interned_data.CopyFrom(self._new)
            self._new.Clear()

    def _callstack(self, calls: tuple[Call, ...]) -> int:
        frames = [self._frame(call) for call in reversed(calls)]  # outermost first
        iid, is_new = self._id("stack", tuple(frames))
        if is_new:
            self._new.callstacks.add(iid=iid, frame_ids=frames)
        return iid

    def _frame(self, call: Call) -> int:
        iid, is_new = self._id("frame", call)
        if is_new:
            self._new.frames.add(
                iid=iid,
                function_name_id=self._text("function", call.frame.function),
                rel_pc=call.address,
                source_path_iid=self._text("path", call.frame.file),
                line_number=max(0, call.frame.line),
            )
        return iid

    def _text(self, table: str, text: str) -> int:
        iid, is_new = self._id(table, text)
        if is_new:
            to = self._new.function_names if table == "function" else self._new.source_paths
            to.add(iid=iid, str=text.encode(errors="replace"))
        return iid

    def _id(self, table: str, thing: Any) -> tuple[int, bool]:  # noqa: ANN401 - any that is hashable
        ids = self._ids[table]
        if thing in ids:
            return ids[thing], False
        ids[thing] = len(ids) + 1
        return ids[thing], True


class _Encoder:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._trace = _package().message_class("Trace")()
        self._interned = _Interned(timeline)
        self._flows = 0
        self._waking: dict[int, int] = {}  # the last wake of each goroutine: its flow
        self._known: set[int] = set()  # tracks that were described

    def pieces(self) -> Iterator[bytes]:
        self._begin()
        for what in (self._goroutines(), self._threads(), self._runtime(), self._counters()):
            for _ in what:
                if len(self._trace.packet) >= _AT_ONCE:
                    yield self._taken()
        yield self._taken()

    def _taken(self) -> bytes:
        data: bytes = self._trace.SerializeToString()
        self._trace.Clear()
        return data

    def _packet(self) -> ProtoMessage:
        packet = self._trace.packet.add(trusted_packet_sequence_id=_SEQUENCE)
        packet.sequence_flags = _NEEDED
        return packet

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
        process.uuid = _uuid("process")
        process.process.pid = timeline.pid
        process.process.process_name = timeline.command.encode(errors="replace")
        process.child_ordering = _EXPLICIT
        for rank, (name, number) in enumerate(
            (("Goroutines", 0), ("Ps: processors of Go", 1), ("Runtime", 2), ("Counts", 3))
        ):
            self._describe(_uuid("group", number), name, _uuid("process"), rank)

    def _describe(self, uuid: int, name: str, parent: int, rank: int = 0) -> None:
        if uuid in self._known:
            return
        self._known.add(uuid)
        track = self._packet().track_descriptor
        track.uuid, track.parent_uuid = uuid, parent
        track.name = name.encode(errors="replace")
        track.sibling_order_rank = rank

    def _event(self, at_ns: int, kind: int, track: int) -> ProtoMessage:
        packet = self._packet()
        packet.timestamp = at_ns
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        return event

    def _named(self, at_ns: int, kind: int, track: int, name: str) -> ProtoMessage:
        iid = self._interned.name(name)
        event = self._event(at_ns, kind, track)
        self._interned.take_new(self._trace.packet[-1])
        event.name_iid = iid
        return event

    def _slice(
        self, begin_ns: int, end_ns: int, track: int, name: str, stack: int = 0
    ) -> ProtoMessage:
        stack_iid = self._interned.stack(stack) if stack else 0
        event = self._named(begin_ns, _BEGIN, track, name)
        if stack_iid:
            event.callstack_iid = stack_iid
        self._event(end_ns, _END, track)
        return event

    def _goroutines(self) -> Iterator[None]:
        flows = self._flow_of_wakes()
        for span in spans(self._timeline):
            if span.length_ns <= 0 and span.state != RUNNABLE:
                continue
            track = self._goroutine_track(span.goid)
            stack = span.stack if span.state in (WAITING, SYSCALL) else 0
            event = self._slice(span.begin_ns, span.end_ns, track, span.what, stack)
            flow = flows.get((span.goid, span.begin_ns)) if span.state == RUNNABLE else None
            if flow and span.by:
                event.terminating_flow_ids.append(flow)
                event.debug_annotations.add(
                    name=b"woken by", string_value=self._title(span.by).encode()
                )
                self._wake(span, flow)
            if span.state == RUNNING:
                event.debug_annotations.add(name=b"P", uint_value=max(0, span.p))
                event.debug_annotations.add(name=b"thread", uint_value=span.tid)
                self._on_p(span)
            for label in self._labels(span):
                event.debug_annotations.add(
                    name=label.key.encode(errors="replace"),
                    string_value=str(label.value).encode(errors="replace"),
                )
            yield

    def _labels(self, span: Span) -> tuple[Any, ...]:
        found = self._timeline.label_sets.get(span.labels) if span.labels else None
        return found or (self._timeline.labels.get(span.goid, ()) if span.is_cut else ())

    def _flow_of_wakes(self) -> dict[tuple[int, int], int]:
        """A number for each wake and creation by a goroutine, by whom and when."""
        found: dict[tuple[int, int], int] = {}
        for step in self._timeline.steps:
            if step.kind in (StepKind.UNBLOCK, StepKind.CREATE) and step.by:
                found[step.goid, step.at_ns] = len(found) + 1
        return found

    def _wake(self, span: Span, flow: int) -> None:
        """An instant on the track of who did it."""
        stack = self._interned.stack(span.stack)
        event = self._named(
            span.begin_ns,
            _INSTANT,
            self._goroutine_track(span.by),
            f"{_WAKES} {self._title(span.goid)}",
        )
        event.flow_ids.append(flow)
        if stack:
            event.callstack_iid = stack

    def _on_p(self, span: Span) -> None:
        track = _uuid("p", span.p + 1)
        self._describe(track, f"P{span.p}", _uuid("group", 1), span.p)
        self._slice(span.begin_ns, span.end_ns, track, self._title(span.goid))

    def _goroutine_track(self, goid: int) -> int:
        track = _uuid("goroutine", goid)
        if track not in self._known:
            found = self._timeline.goroutines.get(goid)
            name = found.name if found else "?"
            group = _uuid("group", 16 + self._group(name))
            self._describe(group, name, _uuid("group", 0), 1 if found and found.is_system else 0)
            self._describe(track, self._title(goid), group)
        return track

    def _group(self, name: str) -> int:
        return self._interned.name(f"goroutines of {name}")

    def _title(self, goid: int) -> str:
        found = self._timeline.goroutines.get(goid)
        return f"G{goid} {printable(found.name)}" if found else f"G{goid}"

    def _threads(self) -> Iterator[None]:
        on: dict[int, Step] = {}
        for step in self._timeline.steps:
            if step.kind is StepKind.THREAD_ON:
                on[step.tid] = step
            elif step.kind is StepKind.THREAD_OFF and step.tid in on:
                begun = on.pop(step.tid)
                name = f"on CPU {begun.other}"
                self._slice(begun.at_ns, step.at_ns, self._thread_track(step.tid), name)
                yield

    def _thread_track(self, tid: int) -> int:
        track = _uuid("thread", tid)
        if track not in self._known:
            self._known.add(track)
            found = self._packet().track_descriptor
            found.uuid, found.parent_uuid = track, _uuid("process")
            found.thread.pid, found.thread.tid = self._timeline.pid, tid
            name = self._timeline.threads.get(tid, "")
            found.thread.thread_name = (name or f"thread {tid}").encode(errors="replace")
        return track

    def _runtime(self) -> Iterator[None]:
        """Garbage collections, stops of the world, times without a recording."""
        begun: dict[str, Step] = {}
        ends = {StepKind.GC_END: "GC", StepKind.START_WORLD: "world", StepKind.ASSIST_END: "assist"}
        begins = {StepKind.GC_BEGIN: "GC", StepKind.STOP_WORLD: "world", StepKind.ASSIST: "assist"}
        for step in self._timeline.steps:
            if kind := begins.get(step.kind):
                begun[f"{kind} {step.goid if kind == 'assist' else 0}"] = step
            elif kind := ends.get(step.kind):
                first = begun.pop(f"{kind} {step.goid if kind == 'assist' else 0}", None)
                if first:
                    self._runtime_slice(kind, first, step.at_ns)
                    yield
            elif step.kind is StepKind.GAP:
                track = _uuid("runtime", 1)
                self._describe(track, "recording", _uuid("group", 2))
                self._slice(step.at_ns, step.other, track, "not recorded")
                yield
        for name, first in begun.items():
            self._runtime_slice(name.split()[0], first, self._timeline.end_ns)
            yield

    def _runtime_slice(self, kind: str, first: Step, end_ns: int) -> None:
        if kind == "assist":
            track, name = _uuid("runtime", first.goid << 4 | 4), "GC assist"
            self._describe(track, f"GC assists of {self._title(first.goid)}", _uuid("group", 2))
        elif kind == "GC":
            track, name = _uuid("runtime", 2), "garbage collection"
            self._describe(track, "garbage collections", _uuid("group", 2))
        else:
            track, name = _uuid("runtime", 3), f"world stopped: {first.word}"
            self._describe(track, "stops of the world", _uuid("group", 2))
        self._slice(first.at_ns, max(first.at_ns, end_ns), track, name)

    def _counters(self) -> Iterator[None]:
        """How many goroutines are in each state."""
        changes: list[tuple[int, str, int]] = []
        for span in spans(self._timeline):
            changes.append((span.begin_ns, span.state, 1))
            changes.append((span.end_ns, span.state, -1))
        changes.sort()
        now: Counter[str] = Counter()
        told: Counter[str] = Counter()
        due_ns = 0
        for at_ns, state, change in changes:
            if at_ns >= due_ns:
                due_ns = at_ns + _COUNTED_EVERY_NS
                for each in STATES:
                    if now[each] != told[each]:
                        self._count(at_ns, each, now[each])
                        told[each] = now[each]
                yield
            now[state] += change

    def _count(self, at_ns: int, state: str, count: int) -> None:
        track = _uuid("counter", STATES.index(state))
        if track not in self._known:
            self._describe(track, f"goroutines {state}", _uuid("group", 3), STATES.index(state))
            self._trace.packet[-1].track_descriptor.counter.unit_name = b"goroutines"
        self._event(at_ns, _COUNTER, track).counter_value = count
