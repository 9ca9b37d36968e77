"""Makes the timeline of a recording: replays its events and looks up names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import counted, duration, in_one_line, listed, percent, printable
from ebpfprof.goruntime.goroutines.frames import StackFrames
from ebpfprof.goruntime.process import for_user
from ebpfprof.kernel.kallsyms import KernelSymbols
from ebpfprof.timeline.model import Timeline
from ebpfprof.timeline.replay import Replay
from ebpfprof.tracing.annotations import constants_of
from ebpfprof.tracing.decode import Decoder
from ebpfprof.tracing.names import TraceNames
from ebpfprof.tracing.polled_files import polled_files
from ebpfprof.tracing.recorder import MOST_EVENTS
from ebpfprof.tracing.wait_objects import WaitObjects
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.tracing.recorded import RecordedTrace
    from ebpfprof.tracing.slices import Slice

_FAULTS: Final = "asm_exc_"  # arch/x86/include/asm/idtentry.h


def timeline_of(recorded: RecordedTrace) -> Timeline:
    """The timeline of what was recorded. Raises CorruptBinary."""
    go = recorded.go
    replay, decoder = _replayed(recorded)
    steps = replay.taken()
    known = {goid: goroutine for part in recorded.slices for goid, goroutine in part.known.items()}
    frames = StackFrames(go)
    names = TraceNames(go, frames, recorded.mapped)
    try:
        calls = names.stacks(recorded.stacks, {step.stack for step in steps})
        calls |= names.annotation_stacks(steps, calls)
        goroutines = names.goroutines(known.values(), steps, calls)
        files = polled_files(*recorded.polled, go.target.descriptors())
        things = WaitObjects(go, frames)
        objects = things.named(steps, recorded.stacks, {**recorded.looked_at, **files})
    except SymbolizerError as error:
        raise for_user(go.target, error, go.path) from error
    labels = {goid: goroutine.labels for goid, goroutine in known.items() if goroutine.labels}
    return Timeline(
        go.target.pid,
        printable(go.target.name),
        printable(go.binary.version.text),
        recorded.begin_ns,
        recorded.end_ns,
        recorded.begin_unix_ns,
        steps,
        calls,
        goroutines,
        _thread_names(go.target.pid),
        recorded.label_sets,
        labels,
        tuple(_comments(recorded, replay, decoder)),
        objects,
        recorded.heap,
        recorded.exact_starts,
    )


def _replayed(recorded: RecordedTrace) -> tuple[Replay, Decoder]:
    """The replay, and the decoder, which has counted what made no sense."""
    rows, slices = recorded.rows, recorded.slices
    decoder = Decoder(recorded.go.binary.layout, _is_fault, constants_of(recorded.go))
    replay = Replay(recorded.begin_ns, slices[0].known if slices else {})
    for number, part in enumerate(slices):
        if number:
            replay.pause(slices[number - 1].end_ns, part.begin_ns, part.known)
        is_last = number == len(slices) - 1
        for event in decoder.events(_part(rows, part, is_last=is_last)):
            replay.take(event)
    replay.end(recorded.end_ns)
    return replay, decoder


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
        for path in folder.iterdir():
            yield int(path.name), printable((path / "comm").read_text(errors="replace").strip())
    except OSError:  # it has ended
        return


def slices_sentence(recorded: RecordedTrace) -> str:
    """How much was recorded, and what it costs to record all; "" if all was."""
    if not recorded.has_pauses:
        return ""
    length_ns = recorded.stopped_ns - recorded.begin_ns
    text = (
        f"recorded {duration(recorded.traced_ns)} of {duration(length_ns)} in "
        f"{counted(len(recorded.slices), 'slice')}"
    )
    share = recorded.share_of_slices
    if share is None:
        return text
    return f"{text}: to record all costs about {percent(share)} of the CPU time of the process"


def _comments(recorded: RecordedTrace, replay: Replay, decoder: Decoder) -> Iterator[str]:
    """What is missing, and what it cost, in words."""
    if recorded.ending:
        yield f"ended early: {recorded.ending.text}"
    if sentence := slices_sentence(recorded):
        yield sentence
    if recorded.overwritten:
        share = recorded.overwritten / max(1, len(recorded.rows) + recorded.overwritten)
        yield (
            f"incomplete: {counted(recorded.overwritten, 'event')} ({percent(share)}) came faster "
            "than ebpfprof read them; gaps were filled from later events"
        )
    if replay.ignored:
        yield f"ignored because they contradict other events: {counted(replay.ignored, 'event')}"
    if decoder.unreadable:
        yield f"ignored because they are invalid: {counted(decoder.unreadable, 'event')}"
    if lost := decoder.texts.unreadable:
        yield f"incomplete: {counted(lost, 'text')} of annotations could not be read"
    if recorded.is_full:
        yield (
            f"ended early: there were more than {MOST_EVENTS} events. Record for less time, or "
            "with a lower --max-overhead"
        )
    for loss in recorded.losses:
        yield f"incomplete: {loss}"
    if recorded.c_failure:
        yield f"incomplete: stacks of C code ({printable(in_one_line(str(recorded.c_failure)))})"
    for name in recorded.missing:
        yield f"not recorded: {name} has no place for a probe"
    if recorded.unseen:
        yield (
            f"not recorded: {listed(recorded.unseen)}, which call the runtime only while Go's own "
            "tracer is on. WithRegion and Log are recorded"
        )
