"""Go's own format of execution traces, as `go tool trace` of Go 1.23 and later reads it.

The format: internal/trace/tracev2 and internal/trace/order.go, Go 1.23 to 1.27. A trace here has
one generation, with nanoseconds of CLOCK_MONOTONIC as its unit of time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from ebpfprof.timeline.steps import NO_THREAD, StepKind, TraceStep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ebpfprof.timeline.model import StackCall, Timeline

_HEADER: Final = b"go 1.23 trace\0\0\0"
_NO_M: Final = (1 << 64) - 1
_GENERATION: Final = 1
_BATCH_BYTES: Final = 60_000  # readers allow 65,536
_MOST_TEXT_BYTES: Final = 1024
_MOST_FRAMES: Final = 128
_TICKS_HZ: Final = 1_000_000_000

# Event types: internal/trace/tracev2/events.go.
_EVENT_BATCH, _STACKS, _STACK, _STRINGS, _STRING, _FREQUENCY = 1, 2, 3, 4, 5, 8
_PROC_START, _PROC_STOP, _PROC_STEAL, _PROC_STATUS = 10, 11, 12, 13
_GO_CREATE, _GO_START, _GO_DESTROY, _GO_STOP, _GO_BLOCK, _GO_UNBLOCK = 14, 16, 17, 19, 20, 21
_SYSCALL, _SYSCALL_END, _SYSCALL_END_BLOCKED = 22, 23, 24
_GO_STATUS, _STW_BEGIN, _STW_END, _GC_BEGIN, _GC_END = 25, 26, 27, 29, 30
_ASSIST_BEGIN, _ASSIST_END, _HEAP_ALLOC, _HEAP_GOAL = 35, 36, 37, 38
_TASK_BEGIN, _TASK_END, _REGION_BEGIN, _REGION_END, _LOG = 40, 41, 42, 43, 44
_GO_CREATE_BLOCKED, _GO_STATUS_STACK = 47, 48
_P_RUNS: Final = 1
_STATUSES: Final = {"runnable": 1, "syscall": 3, "waiting": 4}

# What the tracer calls Go's wait reasons: runtime/traceruntime.go, traceBlockReasonStrings; the
# tool makes its profiles of blocking by these words (cmd/trace/pprof.go).
_TRACER_WORDS: Final = {
    "IO wait": "network",
    "chan receive (nil chan)": "forever",
    "chan send (nil chan)": "forever",
    "select (no cases)": "forever",
    "semacquire": "sync",
    "sync.Mutex.Lock": "sync",
    "sync.RWMutex.RLock": "sync",
    "sync.RWMutex.Lock": "sync",
    "sync.WaitGroup.Wait": "sync",
    "sync.Cond.Wait": "sync.(*Cond).Wait",
    "GC assist wait": "GC mark assist wait for work",
    "GC sweep wait": "GC background sweeper wait",
    "GC scavenge wait": "system goroutine wait",
    "GC worker (idle)": "system goroutine wait",
    "GC worker (active)": "system goroutine wait",
    "finalizer wait": "system goroutine wait",
    "cleanup wait": "system goroutine wait",
    "force gc (idle)": "system goroutine wait",
    "trace reader (blocked)": "system goroutine wait",
    "wait for GC cycle": "wait until GC ends",
    "debug call": "wait for debug call",
    "": "unspecified",
}


def encode(timeline: Timeline) -> bytes:
    """The timeline as a trace. What Go's tracer has no word for, as threads, is left out."""
    return b"".join(parts(timeline))


def parts(timeline: Timeline) -> Iterator[bytes]:
    """The same in pieces."""
    writer = _Writer(timeline)
    yield _HEADER
    yield _batch(_NO_M, 0, bytes([_FREQUENCY]) + _numbers(_TICKS_HZ))
    for step in timeline.steps:
        writer.take(step)
    yield from writer.batches()


class _Batches:
    """The events of one thread, in batches."""

    def __init__(self, m: int) -> None:
        self._m = m
        self._done: list[bytes] = []
        self._begin_ns = self._last_ns = 0
        self._data = bytearray()

    def add(self, at_ns: int, kind: int, *arguments: int) -> None:
        if not self._data:
            self._begin_ns = self._last_ns = at_ns
        self._data.append(kind)
        self._data += _numbers(at_ns - self._last_ns, *arguments)
        self._last_ns = at_ns
        if len(self._data) >= _BATCH_BYTES:
            self._end()

    def all(self) -> list[bytes]:
        if self._data:
            self._end()
        return self._done

    def _end(self) -> None:
        self._done.append(_batch(self._m, self._begin_ns, bytes(self._data)))
        self._data.clear()


class _Table:
    """Things that get numbers from 1 on as they come."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def id_of(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids) + 1)


class _Writer:
    """Translates steps to events."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._threads: dict[int, _Batches] = {}
        self._texts = _Table()
        self._stacks: dict[tuple[StackCall, ...], int] = {}
        self._frames: dict[int, tuple[int, int, int]] = {}
        """By pc."""
        self._keys: dict[int, int] = {}
        self._g_numbers: dict[int, int] = defaultdict(int)
        self._p_numbers: dict[int, int] = defaultdict(int)
        self._collections = self._heap_written = 0
        self._writes: dict[StepKind, Callable[[TraceStep, _Batches], None]] = {
            StepKind.P_RUNS: lambda step, to: to.add(step.at_ns, _PROC_STATUS, step.p, _P_RUNS),
            StepKind.P_START: lambda step, to: to.add(step.at_ns, _PROC_START, *self._p(step)),
            StepKind.P_STOP: lambda step, to: to.add(step.at_ns, _PROC_STOP),
            StepKind.P_STEAL: lambda step, to: to.add(
                step.at_ns, _PROC_STEAL, *self._p(step), step.other
            ),
            StepKind.IS: self._is,
            StepKind.CREATE: self._create,
            StepKind.START: self._start,
            StepKind.STOP: lambda step, to: to.add(step.at_ns, _GO_STOP, *self._why(step)),
            StepKind.BLOCK: lambda step, to: to.add(step.at_ns, _GO_BLOCK, *self._why(step)),
            StepKind.UNBLOCK: lambda step, to: to.add(
                step.at_ns, _GO_UNBLOCK, *self._g(step), self._stack(step.stack)
            ),
            StepKind.DESTROY: lambda step, to: to.add(step.at_ns, _GO_DESTROY),
            StepKind.SYSCALL: lambda step, to: to.add(
                step.at_ns, _SYSCALL, self._p(step)[1], self._stack(step.stack)
            ),
            StepKind.SYSCALL_END: lambda step, to: to.add(step.at_ns, _SYSCALL_END),
            StepKind.SYSCALL_LOST: lambda step, to: to.add(step.at_ns, _SYSCALL_END_BLOCKED),
            StepKind.GC_BEGIN: lambda step, to: to.add(step.at_ns, _GC_BEGIN, self._cycle(), 0),
            StepKind.GC_END: lambda step, to: to.add(step.at_ns, _GC_END, self._cycle()),
            StepKind.STOP_WORLD: lambda step, to: to.add(
                step.at_ns, _STW_BEGIN, self._texts.id_of(step.word), 0
            ),
            StepKind.START_WORLD: lambda step, to: to.add(step.at_ns, _STW_END),
            StepKind.ASSIST: lambda step, to: to.add(step.at_ns, _ASSIST_BEGIN, 0),
            StepKind.ASSIST_END: lambda step, to: to.add(step.at_ns, _ASSIST_END),
            StepKind.TASK_BEGIN: self._task_begin,
            StepKind.TASK_END: lambda step, to: to.add(
                step.at_ns, _TASK_END, step.note.task, self._stack(step.stack)
            ),
            StepKind.REGION_BEGIN: lambda step, to: to.add(
                step.at_ns, _REGION_BEGIN, *self._region(step)
            ),
            StepKind.REGION_END: lambda step, to: to.add(
                step.at_ns, _REGION_END, *self._region(step)
            ),
            StepKind.LOG: self._log,
        }

    def take(self, step: TraceStep) -> None:
        write = self._writes.get(step.kind)
        if write:
            m = step.tid if step.tid != NO_THREAD else _NO_M
            to = self._threads.get(m)
            if to is None:
                to = self._threads[m] = _Batches(m)
            write(step, to)

    def batches(self) -> Iterator[bytes]:
        for thread in self._threads.values():
            yield from thread.all()
        yield from _tables(_STACKS, self._stack_rows())
        yield from _tables(_STRINGS, self._text_rows())

    def _is(self, step: TraceStep, to: _Batches) -> None:
        stack = self._stack(step.stack) or self._start_stack(step.goid)
        m = step.tid if step.tid != NO_THREAD else _NO_M
        to.add(step.at_ns, _GO_STATUS_STACK, step.goid, m, _STATUSES[step.state], stack)

    def _start(self, step: TraceStep, to: _Batches) -> None:
        to.add(step.at_ns, _GO_START, *self._g(step))
        # Readers demand a P for these: here is one for sure (order.go, advanceHeapMetric).
        heap, written = self._timeline.heap, self._heap_written
        while self._heap_written < len(heap) and heap[self._heap_written].at_ns <= step.at_ns:
            self._heap_written += 1
        if self._heap_written > written:
            now = heap[self._heap_written - 1]
            to.add(step.at_ns, _HEAP_ALLOC, now.live)
            if now.goal is not None:
                to.add(step.at_ns, _HEAP_GOAL, now.goal)

    def _create(self, step: TraceStep, to: _Batches) -> None:
        start = self._start_stack(step.goid)
        kind = _GO_CREATE_BLOCKED if step.state == "waiting" else _GO_CREATE
        to.add(step.at_ns, kind, step.goid, start, self._stack(step.stack))

    def _task_begin(self, step: TraceStep, to: _Batches) -> None:
        note = step.note
        name, stack = self._texts.id_of(note.name), self._stack(step.stack)
        to.add(step.at_ns, _TASK_BEGIN, note.task, note.parent, name, stack)

    def _region(self, step: TraceStep) -> tuple[int, int, int]:
        return step.note.task, self._texts.id_of(step.note.name), self._stack(step.stack)

    def _log(self, step: TraceStep, to: _Batches) -> None:
        note = step.note
        texts = self._texts.id_of(note.name), self._texts.id_of(note.message)
        to.add(step.at_ns, _LOG, note.task, *texts, self._stack(step.stack))

    def _start_stack(self, goid: int) -> int:
        """The tool names a goroutine by the outermost call of the first stack that it has of it."""
        goroutine = self._timeline.goroutines.get(goid)
        return self._number((goroutine.start,)) if goroutine and goroutine.start else 0

    def _why(self, step: TraceStep) -> tuple[int, int]:
        word = _TRACER_WORDS.get(step.word, step.word)
        return self._texts.id_of(word), self._stack(step.stack)

    def _g(self, step: TraceStep) -> tuple[int, int]:
        self._g_numbers[step.goid] += 1
        return step.goid, self._g_numbers[step.goid]

    def _p(self, step: TraceStep) -> tuple[int, int]:
        self._p_numbers[step.p] += 1
        return step.p, self._p_numbers[step.p]

    def _cycle(self) -> int:
        self._collections += 1
        return self._collections

    def _stack(self, key: int) -> int:
        number = self._keys.get(key)
        if number is None:
            calls = self._timeline.stacks.get(key, ())
            number = self._keys[key] = self._number(calls) if calls else 0
        return number

    def _number(self, calls: tuple[StackCall, ...]) -> int:
        return self._stacks.setdefault(calls, len(self._stacks) + 1)

    def _stack_rows(self) -> Iterator[bytes]:
        for calls, number in self._stacks.items():
            shown = calls[:_MOST_FRAMES]
            row = [number, len(shown)]
            for call in shown:
                row += self._frame_of(call)
            yield bytes([_STACK]) + _numbers(*row)

    def _frame_of(self, call: StackCall) -> tuple[int, int, int, int]:
        """The pc, function, file and line of a call, with a pc that no other frame has.

        Readers keep frames by pc (internal/trace/generation.go, addStacks, Go 1.23 to 1.27): of
        two with one pc they show the first. Go's own tracer writes the address behind the call, or
        behind what stands in the code for a call that was inlined (runtime/tracestack.go,
        fpunwindExpand). Calls in C and in the kernel may still share an address: the next one that
        is free is as good, since readers look up nothing by it.
        """
        frame = call.frame
        names = self._texts.id_of(frame.function), self._texts.id_of(frame.file)
        place = (*names, max(0, frame.line))
        pc = call.pc + 1
        while self._frames.setdefault(pc, place) != place:
            pc += 1
        return pc, *place

    def _text_rows(self) -> Iterator[bytes]:
        for text, number in self._texts.ids.items():
            data = text.encode(errors="replace")[:_MOST_TEXT_BYTES]
            yield bytes([_STRING]) + _numbers(number, len(data)) + data


def _tables(kind: int, rows: Iterable[bytes]) -> Iterator[bytes]:
    """Rows of a table in batches."""
    data = bytearray([kind])
    for row in rows:
        if len(data) + len(row) > _BATCH_BYTES and len(data) > 1:
            yield _batch(_NO_M, 0, bytes(data))
            data = bytearray([kind])
        data += row
    if len(data) > 1:
        yield _batch(_NO_M, 0, bytes(data))


def _batch(m: int, begin_ns: int, data: bytes) -> bytes:
    return bytes([_EVENT_BATCH]) + _numbers(_GENERATION, m, begin_ns, len(data)) + data


def _numbers(*values: int) -> bytes:
    """Unsigned LEB128, which protobuf calls varints."""
    numbers = bytearray()
    for value in values:
        while value > 0x7F:
            numbers.append(value & 0x7F | 0x80)
            value >>= 7
        numbers.append(value)
    return bytes(numbers)
