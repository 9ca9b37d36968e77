"""What goroutines of a trace wait for: locks by their names, connections by their addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpfprof.process.process import Target as Process
from ebpfprof.timeline.model import Timeline, WaitObject
from ebpfprof.timeline.spans import WAITING, Span, spans
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.timelines import timeline_of
from tests.builds import versions
from tests.go_target import inspect
from tests.kernel.programs import NEWEST, program
from tests.targets_run import Target

UNKNOWN = WaitObject("", is_named=False)


@contextmanager
def at_work(minor: str, folder: Path) -> Iterator[tuple[Target, int, int]]:
    """The program, and the ports of its two servers."""
    with Target.start(program("traced", minor)) as target:
        ports = target.ask(f"trace {folder / 'unused'} objects", "ports").split()[1:]
        target.expect("begun")
        target.ask("end", "ended")
        yield target, int(ports[0]), int(ports[1])
        target.kill()


def recorded(pid: int, *, last_s: float | None = None) -> Timeline:
    with (
        Process(pid) as process,
        TraceRecorder(inspect(process), TraceOptions(last_s=last_s)) as recorder,
    ):
        recorder.load()
        recorder.start()
        recorder.record(1, lambda _: False)
        recorder.stop()
        return timeline_of(recorder.recorded())


def waits(timeline: Timeline) -> dict[str, list[tuple[Span, WaitObject]]]:
    """The waits that began in the trace, or lasted all the time, by the functions on the stack."""
    found = defaultdict(list)
    for span in spans(timeline):
        if span.state == WAITING and span.stack:
            for call in timeline.stacks.get(span.stack, ()):
                thing = timeline.objects.get(span.on, UNKNOWN)
                found[call.frame.function].append((span, thing))
    return found


def reads(found: list[tuple[Span, WaitObject]]) -> list[WaitObject]:
    """What the network waits were for, but for those that a sample may have found too late."""
    return [thing for span, thing in found if span.word == "IO wait" and not span.is_cut]


def peers(things: list[WaitObject]) -> set[str]:
    return {thing.file.peer if thing.file else thing.name for thing in things}


@pytest.mark.parametrize("minor", versions("1.19", "1.24", NEWEST))
def test_waits_have_the_names_of_locks_and_the_addresses_of_connections(
    minor: str, tmp_path: Path
) -> None:
    with at_work(minor, tmp_path) as (target, first, second):
        timeline = recorded(target.pid)
    found = waits(timeline)
    for function, names in (
        ("main.take", {"main.catalog.mu"}),
        ("main.look", {"main.shelf.rw"}),
        ("main.put", {"main.shelf.rw", "main.shelf.moved"}),
    ):
        # At its begin, a sample may find them just before they continue.
        seen = [pair for pair in found[function] if not pair[0].is_cut]
        locks = [thing.name for span, thing in seen if span.word != "sleep"]
        assert set(locks) == names
        assert len(locks) > 100
    ((waits_long, barred),) = found["main.stay"]
    assert waits_long.is_cut
    assert barred.name == "main.barred"
    for function, port in (("main.askFirst", first), ("main.askSecond", second)):
        connections = reads(found[function])
        assert peers(connections) == {f"127.0.0.1:{port}"}
        assert len({thing.file for thing in connections}) > 10  # each with a port of its own
        assert len({thing.file.fd for thing in connections if thing.file}) < 6
    ((_, idle),) = found["main.idle"]
    assert idle.name.startswith(f"read from 127.0.0.1:{second}, here 127.0.0.1:")
    servers = {thing.file.local for _, thing in found["main.accept"] if thing.file}
    assert servers == {f"127.0.0.1:{port}" for port in (first, second)}


@pytest.mark.full
def test_what_happened_last_has_names_too(tmp_path: Path) -> None:
    """Although nobody looked while the connections were open."""
    with at_work(NEWEST, tmp_path) as (target, first, second):
        timeline = recorded(target.pid, last_s=0.5)
    found = waits(timeline)
    for function, port in (("main.askFirst", first), ("main.askSecond", second)):
        connections = reads(found[function])
        assert peers(connections) == {f"127.0.0.1:{port}"}
        assert len({thing.file for thing in connections}) > 5
    assert {thing.name for _, thing in found["main.take"]} >= {"main.catalog.mu"}
