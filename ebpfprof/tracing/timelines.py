"""Makes the timeline of a recording: replays its events and looks up names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import counted, duration, percent, printable
from ebpfprof.goruntime.frames import StackFrames
from ebpfprof.goruntime.process import for_user
from ebpfprof.kernel.kallsyms import KernelSymbols
from ebpfprof.process.descriptors import Descriptors
from ebpfprof.timeline.model import Timeline
from ebpfprof.timeline.replay import Replay
from ebpfprof.tracing.decode import Decoder
from ebpfprof.tracing.names import TraceNames
from ebpfprof.tracing.polled_files import polled_files
from ebpfprof.tracing.recorder import MOST_EVENTS
from ebpfprof.tracing.wait_objects import WaitObjects
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.tracing.recorder import TraceRecorder
    from ebpfprof.tracing.slices import Slice

_FAULTS: Final = "asm_exc_"  # arch/x86/include/asm/idtentry.h
_WHOLE: Final = 0.9  # of the time: what is missing is the time to detach probes


def timeline_of(recorder: TraceRecorder) -> Timeline:
    """The timeline of a recording that was stopped. Raises CorruptBinary."""
    go = recorder.go
    replay, unreadable = _replayed(recorder)
    steps = replay.taken()
    known = {goid: each for part in recorder.slices for goid, each in part.known.items()}
    frames = StackFrames(go)
    names = TraceNames(frames)
    stacks = {**recorder.program.stacks(), **recorder.census.stacks}
    try:
        calls = names.stacks(stacks, {step.stack for step in steps})
        goroutines = names.goroutines(known.values(), steps, calls)
        files = polled_files(*recorder.program.files(), Descriptors(go.target.pid))
        things = WaitObjects(go, frames)
        objects = things.named(steps, stacks, {**recorder.census.files, **files})
    except SymbolizerError as error:
        raise for_user(go.target, error) from error
    labels = {goid: each.labels for goid, each in known.items() if each.labels}
    return Timeline(
        go.target.pid,
        printable(go.target.name),
        printable(go.binary.version.text),
        recorder.begin_ns,
        recorder.end_ns,
        recorder.begin_unix_ns,
        steps,
        calls,
        goroutines,
        _thread_names(go.target.pid),
        recorder.program.label_sets(),
        labels,
        tuple(_comments(recorder, replay, unreadable)),
        objects,
        recorder.heap.between(recorder.begin_ns, recorder.end_ns),
        recorder.options.exact_starts,
    )


def _replayed(recorder: TraceRecorder) -> tuple[Replay, int]:
    """The replay, and how many events made no sense."""
    rows, slices = recorder.rows(), recorder.slices
    decoder = Decoder(recorder.go.binary.layout, _is_fault)
    replay = Replay(recorder.begin_ns, slices[0].known if slices else {})
    for number, each in enumerate(slices):
        if number:
            replay.pause(slices[number - 1].end_ns, each.begin_ns, each.known)
        is_last = number == len(slices) - 1
        for event in decoder.events(_part(rows, each, is_last=is_last)):
            replay.take(event)
    replay.end(recorder.end_ns)
    return replay, decoder.unreadable


def _is_fault(entry: int) -> bool:
    symbol = KernelSymbols.shared().at(entry)
    return symbol is not None and symbol.name.startswith(_FAULTS)


def _part(rows: npt.NDArray[Any], of: Slice, *, is_last: bool) -> npt.NDArray[Any]:
    """The events of a slice; of the last one also those that probes were just recording."""
    times = rows["at_ns"]
    begin, end = times.searchsorted([of.begin_ns, of.end_ns])
    return rows[begin:] if is_last else rows[begin:end]


def _thread_names(pid: int) -> dict[int, str]:
    """By thread id, of those that still run."""
    return dict(_read_thread_names(Path(f"/proc/{pid}/task")))


def _read_thread_names(folder: Path) -> Iterator[tuple[int, str]]:
    try:
        for each in folder.iterdir():
            yield int(each.name), printable((each / "comm").read_text(errors="replace").strip())
    except OSError:  # it has ended
        return


def _comments(recorder: TraceRecorder, replay: Replay, unreadable: int) -> Iterator[str]:
    """What is missing, and what it cost, in words."""
    if recorder.ending:
        yield f"ended early: {recorder.ending.text}"
    recorded_ns = sum(
        each.end_ns - max(each.begin_ns, recorder.begin_ns) for each in recorder.slices
    )
    length_ns = recorder.stopped_ns - recorder.begin_ns
    if recorded_ns < _WHOLE * length_ns and not recorder.ending:
        yield (
            f"recorded {duration(recorded_ns)} of {duration(length_ns)}, in "
            f"{counted(len(recorder.slices), 'slice')}: --max-overhead; 0 records all"
        )
    if recorder.overwritten:
        share = recorder.overwritten / max(1, len(recorder.rows()) + recorder.overwritten)
        yield (
            f"incomplete: {counted(recorder.overwritten, 'event')} ({percent(share)}) came faster "
            "than ebpfprof read them; what follows from later events was put in"
        )
    if replay.ignored:
        yield f"left out, since they contradict others: {counted(replay.ignored, 'event')}"
    if unreadable:
        yield f"left out, since they make no sense: {counted(unreadable, 'event')}"
    if recorder.is_full:
        yield (
            f"ended early: there were more than {MOST_EVENTS} events. Record for less time, or "
            "with a lower --max-overhead"
        )
    for loss in recorder.losses():
        yield f"incomplete: {loss}"
    for name in recorder.missing:
        yield f"not seen: what {name} does, which has no place for a probe"
