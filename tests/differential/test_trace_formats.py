"""Others read our traces, also where events were lost: Go's tool, Perfetto's own messages."""

from __future__ import annotations

import base64
import re
import subprocess
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from ebpfprof.export.timelines import go_trace, page, perfetto
from ebpfprof.export.timelines.perfetto.tracks import uuid
from ebpfprof.timeline.events import Annotation, Event, EventKind
from ebpfprof.timeline.model import Timeline
from ebpfprof.timeline.spans import RUNNABLE, RUNNING, STATES, WAITING, spans
from ebpfprof.timeline.steps import StepKind
from tests.builds import in_full, versions
from tests.made_up_timeline import Story
from tests.simulated_scheduler import BEGIN_NS, SimulatedScheduler, steps_of, timeline_of_steps
from tests.toolchains import toolchain
from tests.unit.timeline.test_critical import timeline as known_waits
from tests.unit.timeline.test_tasks import order
from tests.unit.timeline.test_threads import timeline as known_threads

READERS = ("1.25", "1.27")  # those that print what they replay
PROFILES = ("net", "sync", "syscall", "sched")


def simulated(seed: int, lost: float, *, steps: int = 2000) -> Timeline:
    """What a replay makes of a simulation of which a part of the events were lost."""
    random = Random(seed)
    world = SimulatedScheduler(random)
    events = [each for each in world.run(steps) if random.random() >= lost]
    found, _ = steps_of(events, world.known)
    return timeline_of_steps(found, world.now_ns)


def changes_of_goroutines(timeline: Timeline) -> int:
    """The number of steps that are changes of a goroutine's state."""
    return sum(
        bool(step.goid)
        and not step.kind.is_annotation
        and not step.kind.name.startswith(("GC", "THREAD"))
        for step in timeline.steps
    )


@pytest.mark.parametrize("minor", versions(*READERS))
@pytest.mark.parametrize("lost", [*in_full(0, 0.02), 0.2, *in_full(0.6)])
def test_gos_tool_replays_traces_with_lost_events(lost: float, minor: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    for seed in range(4):
        timeline = simulated(seed, lost)
        path.write_bytes(go_trace.encode(timeline))
        text = toolchain(minor).go("tool", "trace", "-d=parsed", path)
        changes = re.findall(r"^M=.* StateTransition .*\bGoID=\d+ \w+->\w+", text, re.MULTILINE)
        assert len(changes) == changes_of_goroutines(timeline)
        annotated = re.findall(r"^M=.* (?:Task|Region|Log)\w* ", text, re.MULTILINE)
        steps = sum(step.kind.is_annotation for step in timeline.steps)
        assert len(annotated) == steps
        assert steps > 5 or lost > 0.5


@pytest.mark.parametrize("seed", [0, 1, *in_full(*range(2, 6))])
def test_gos_tool_replays_what_a_hostile_program_makes_up(seed: int, tmp_path: Path) -> None:
    """Events that no scheduler ever had: a trace comes of them anyway."""
    random = Random(seed)
    kinds = list(EventKind)
    events = [
        Event(
            *(BEGIN_NS + at, random.choice(kinds), random.randint(0, 9), random.randint(0, 9)),
            stack=random.choice((0, 3, 7, 99)),
            tid=random.randint(1, 6),
            p=random.randint(-1, 3),
            word=random.choice(("", "select", "\x1b[2J", "x" * 5000)),
            more=random.randint(0, 9),
            is_made=random.random() < 0.5,
            is_exit=random.random() < 0.5,
            note=Annotation(
                *(random.randint(0, 5), random.choice(("", "a", "\ud800", "\x1b[2J"))),
                *(random.randint(0, 1 << 64), "x" * random.choice((0, 5000))),
            ),
        )
        for at in range(3000)
    ]
    known = SimulatedScheduler(random).known if seed % 2 else {}
    steps, _ = steps_of(events, known)
    timeline = timeline_of_steps(steps, events[-1].at_ns)
    path = tmp_path / "trace"
    path.write_bytes(go_trace.encode(timeline))
    assert "StateTransition" in toolchain("1.27").go("tool", "trace", "-d=parsed", path)
    assert perfetto.encode(timeline)
    assert page.encode(timeline)


@pytest.mark.parametrize("minor", versions("1.23", "1.25", "1.27"))
@pytest.mark.parametrize("kind", PROFILES)
def test_gos_tool_makes_profiles_of_them(kind: str, minor: str, tmp_path: Path) -> None:
    path, profile = tmp_path / "trace", tmp_path / "profile"
    path.write_bytes(go_trace.encode(simulated(1, 0.02)))
    go = toolchain(minor)
    done = subprocess.run(
        [go.goroot / "bin" / "go", "tool", "trace", f"-pprof={kind}", path],
        env=go.environment(),
        capture_output=True,
        check=True,
    )
    profile.write_bytes(done.stdout)
    text = go.go("tool", "pprof", "-top", profile)
    assert "main.outer" in text


def test_a_long_trace_has_several_batches(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    timeline = simulated(3, 0, steps=120_000)
    path.write_bytes(go_trace.encode(timeline))
    text = toolchain("1.27").go("tool", "trace", "-d=parsed", path)
    starts = re.findall(r"Runnable->Running", text)
    assert len(starts) == sum(step.kind is StepKind.START for step in timeline.steps) > 10_000


def events_of(timeline: Timeline) -> tuple[Any, dict[int, list[TrackEvent]], dict[int, str]]:
    """The trace as Perfetto's own messages read it; events and names by track."""
    trace = Trace()
    trace.ParseFromString(perfetto.encode(timeline))
    events: dict[int, list[TrackEvent]] = defaultdict(list)
    names: dict[int, str] = {}
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            names[packet.track_descriptor.uuid] = packet.track_descriptor.name
        if packet.HasField("track_event"):
            events[packet.track_event.track_uuid].append(packet.track_event)
    return trace, events, names


def test_perfetto_finds_a_track_for_each_goroutine_and_p() -> None:
    timeline = simulated(2, 0.02)
    _, events, names = events_of(timeline)
    goids = {span.goid for span in spans(timeline) if span.length_ns or span.state == RUNNABLE}
    assert {f"G{goid} main.work" for goid in goids} <= set(names.values())
    assert {"P0", "P1", "P2", "Runtime", "goroutines waiting"} <= set(names.values())
    assert set(events) <= set(names)  # each track is described
    for found in events.values():
        kinds = Counter(event.type for event in found)
        assert kinds[TrackEvent.TYPE_SLICE_BEGIN] == kinds[TrackEvent.TYPE_SLICE_END]


def test_perfetto_s_flows_are_balanced() -> None:
    timeline = simulated(2, 0)
    _, events, _ = events_of(timeline)
    begun = [flow for event in events.values() for each in event for flow in each.flow_ids]
    ended = [
        flow for found in events.values() for each in found for flow in each.terminating_flow_ids
    ]
    wakes = [
        step
        for step in timeline.steps
        if step.kind in (StepKind.UNBLOCK, StepKind.CREATE) and step.by
    ]
    assert sorted(begun) == sorted(ended)
    assert len(begun) == len(set(begun)) == len(wakes) > 100


def test_perfetto_s_times_are_those_of_the_spans() -> None:
    """And names, stacks and clocks can be looked up."""
    timeline = simulated(4, 0)
    trace, _, tracks = events_of(timeline)
    names: dict[int, str] = {}
    frames: dict[int, int] = {}
    functions: dict[int, str] = {}
    stacks: dict[int, list[int]] = {}
    sums: Counter[str] = Counter()
    open_slices: dict[int, tuple[int, str]] = {}
    for packet in trace.packet:
        interned = packet.interned_data
        names |= {each.iid: each.name for each in interned.event_names}
        functions |= {each.iid: each.str.decode() for each in interned.function_names}
        frames |= {frame.iid: frame.function_name_id for frame in interned.frames}
        stacks |= {callstack.iid: list(callstack.frame_ids) for callstack in interned.callstacks}
        event = packet.track_event
        if not tracks.get(event.track_uuid, "").startswith("G"):
            continue
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            open_slices[event.track_uuid] = packet.timestamp, names[event.name_iid]
        elif event.type == TrackEvent.TYPE_SLICE_END:
            begin_ns, name = open_slices.pop(event.track_uuid)
            sums[name] += packet.timestamp - begin_ns
    wanted: Counter[str] = Counter()
    for span in spans(timeline):
        wanted[span.what] += span.length_ns
    assert sums == +wanted
    shown = {tuple(functions[frames[each]] for each in stack) for stack in stacks.values()}
    assert shown == {("main.outer",), ("main.outer", "main.inner")}  # outermost first
    clocks = {clock.clock_id: clock.timestamp for clock in trace.packet[1].clock_snapshot.clocks}
    assert clocks[1] == timeline.begin_unix_ns
    assert clocks[3] == timeline.begin_ns


def test_perfetto_s_waits_say_what_for() -> None:
    found = known_waits()
    _, events, tracks = events_of(found)
    notes = {
        (tracks[track], note.name, note.string_value)
        for track, some in events.items()
        for each in some
        for note in each.debug_annotations
        if note.name.startswith("waits")
    }
    lock = "main.cache.mu (sync.Mutex at 0xc000012340)"
    assert notes == {
        ("G1 main.asks", "waits for", lock),
        ("G2 main.holds", "waits for", lock),
        ("G3 main.reads", "waits to", "read from 10.0.0.1:80, here 10.0.0.2:4711 (tcp, fd 7)"),
    }


def test_perfetto_s_threads_say_who_woke_them() -> None:
    found = known_threads()
    _, events, tracks = events_of(found)
    (seven, eight) = (events[uuid("thread", tid)] for tid in (7, 8))
    assert tracks.keys() >= {uuid("thread", 7), uuid("thread", 8)}
    notes = [note.string_value for each in seven for note in each.debug_annotations]
    assert notes == [
        *("t (8)", "curl (4711)", "an interrupt, while curl (4711) ran", "an interrupt")
    ]
    flows = [flow for each in eight for flow in each.flow_ids]
    assert len(flows) == 1
    assert [flow for each in seven for flow in each.terminating_flow_ids] == flows
    others = [flow for some in events.values() for each in some for flow in each.flow_ids]
    assert len(others) == len(set(others)) > 1


def test_perfetto_has_tracks_of_tasks_and_regions() -> None:
    found = order().timeline(1000)
    _, events, tracks = events_of(found)
    titles = {tracks[track] for track in events}
    assert titles >= {"order", "dish", "regions of G1 main.a", "regions of G2 main.b"}
    notes = {
        (tracks[track], note.name, note.string_value)
        for track, some in events.items()
        for each in some
        for note in each.debug_annotations
        if tracks[track] == "dish" or "regions" in tracks[track]
    }
    assert notes == {
        ("dish", "task", "2"),
        ("dish", "part of", "1 order"),
        ("regions of G1 main.a", "task", "1 order"),
        ("regions of G1 main.a", "task", "2 dish"),
        ("regions of G1 main.a", "message", "large"),
        ("regions of G2 main.b", "task", "1 order"),
    }


def test_tasks_of_one_type_at_the_same_time_have_tracks_of_their_own() -> None:
    story = Story({1: "main.a"})
    for number, at_ns in ((1, 10), (2, 20), (3, 30)):
        story.annotate(at_ns, EventKind.TASK_BEGIN, 1, Annotation(number, "job"))
        if number == 2:
            story.annotate(25, EventKind.TASK_END, 1, Annotation(1))
    _, events, tracks = events_of(story.timeline(100))
    jobs = [some for track, some in events.items() if tracks[track] == "job"]
    assert sorted(len(some) for some in jobs) == [2, 4]  # the third job has the first one's track


def test_the_size_of_the_heap_is_in_all_formats(tmp_path: Path) -> None:
    found = known_threads()
    _, events, tracks = events_of(found)
    values = {
        tracks[track]: [each.counter_value for each in some]
        for track, some in events.items()
        if some[0].type == TrackEvent.TYPE_COUNTER
    }
    assert values["heap live"] == [4 << 20, 6 << 20]
    assert values["heap goal"] == [8 << 20]
    path = tmp_path / "trace"
    world = simulated(2, 0)
    half_ns = (world.begin_ns + world.end_ns) // 2
    later = found.heap[1]._replace(at_ns=half_ns)
    heap = (found.heap[0]._replace(at_ns=world.begin_ns), later)
    path.write_bytes(go_trace.encode(replace(world, heap=heap)))
    for minor in READERS:
        text = toolchain(minor).go("tool", "trace", "-d=parsed", path)
        reported = re.findall(r' Metric .*Name="([^"]*)" Value=.*?\((\d+)\)', text)
        assert reported == [
            ("/memory/classes/heap/objects:bytes", str(4 << 20)),
            ("/gc/heap/goal:bytes", str(8 << 20)),
            ("/memory/classes/heap/objects:bytes", str(6 << 20)),
        ]


def test_the_page_has_all_spans() -> None:
    timeline = simulated(5, 0.02)
    found = page.document(timeline)
    sums: Counter[str] = Counter()
    for row in found["goroutines"]:
        begins, ends = (
            np.frombuffer(base64.b64decode(row[key]), "<f8") for key in ("begins", "ends")
        )
        states = np.frombuffer(base64.b64decode(row["states"]), "u1")
        for state, length in zip(states.tolist(), (ends - begins).tolist(), strict=True):
            sums[STATES[state]] += int(length)
    wanted: Counter[str] = Counter()
    for span in spans(timeline):
        wanted[span.state] += span.length_ns
    assert sums == +wanted
    assert {RUNNING, WAITING} <= set(sums)


def test_the_page_s_text_is_not_a_markup() -> None:
    timeline = simulated(5, 0)
    text = page.encode(timeline).decode()
    assert text.count("<script") == 2
