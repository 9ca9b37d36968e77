"""What a program annotates, seen from outside, against what Go's own tracer wrote of it.

The program traces itself in the same seconds. Both files are read by Go's own tool.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from ebpfprof.export.timelines import go_trace
from ebpfprof.process.process import Target as Process
from ebpfprof.timeline.model import Timeline
from ebpfprof.timeline.tasks import task_types
from ebpfprof.tracing.recorder import TraceOptions, TraceRecorder
from ebpfprof.tracing.timelines import timeline_of
from symbolizer import ElfFile, GoBinary
from symbolizer.codeanalysis.annotation_sites import AnnotationMoment, annotation_sites
from tests.builds import VERSIONS, pairs, versions
from tests.differential.go_trace import Reported, reported
from tests.go_target import inspect
from tests.kernel.programs import NEWEST, TARGETS, program
from tests.targets_run import Target
from tests.toolchains import toolchain

SECONDS = 0.4
EDGE_NS = 5_000_000
WITHOUT_CLOCK = VERSIONS[: VERSIONS.index("1.22")]
MOST_TEXT_BYTES = 1024  # newer tracers keep no more
SHORT_NS, LONG_NS = 2_000_000, 20_000_000  # sleeps of the target
CLOCK_STEP_NS = 64


@dataclass(frozen=True)
class Both:
    """Our timeline, and what Go's tool says of both traces."""

    timeline: Timeline
    ours: list[Reported]
    theirs: list[Reported]


def recorded(work: str, minor: str, folder: Path, *, tags: tuple[str, ...] = ()) -> Both:
    theirs, ours = folder / "go.trace", folder / "ours.trace"
    built = toolchain(minor).build(TARGETS / "annotated", tags=tags)
    with Target.start(built) as target, Process(target.pid) as process:
        with TraceRecorder(inspect(process), TraceOptions()) as recorder:
            recorder.load()
            target.ask(f"trace {theirs}", "begun")
            target.ask(work, "working")
            recorder.start()
            recorder.record(SECONDS, lambda gone_s: False)
            recorder.stop()
            target.ask("end", "ended")
            timeline = timeline_of(recorder.recorded())
        target.kill()
    ours.write_bytes(go_trace.encode(timeline))
    return Both(timeline, read(ours), read(theirs))


def read(path: Path) -> list[Reported]:
    text = toolchain(NEWEST).go("tool", "trace", "-d=parsed", path)
    return list(reported(text.splitlines()))


def comparable(found: Reported) -> tuple[str, str, tuple[tuple[str, int], ...]]:
    """Without the time. Of the end of a task, the tool repeats what its begin had."""
    text = found.text.replace(r"\xff", "\ufffd")
    if found.kind == "TaskEnd":
        text = text.split(" ")[0]
    text = re.sub(r"(\d{1024})\d+", r"\1", text)
    return found.kind, text, found.stack


def by_goroutine(found: list[Reported]) -> dict[int, list[Reported]]:
    rows: dict[int, list[Reported]] = defaultdict(list)
    for each in found:
        rows[each.goid].append(each)
    return rows


def same_part(part: list[Reported], whole: list[Reported]) -> list[Reported]:
    """The part of the whole that reports the same; empty if there is none."""
    wanted, reports = list(map(comparable, part)), list(map(comparable, whole))
    for at in range(len(whole) - len(part) + 1):
        if reports[at : at + len(part)] == wanted:
            return whole[at : at + len(part)]
    return []


@pytest.mark.parametrize("minor", versions())
def test_tasks_regions_and_messages_are_gos_own(minor: str, tmp_path: Path) -> None:
    """All of each goroutine, in order, with their texts and stacks."""
    both = recorded("work", minor, tmp_path)
    assert both.timeline.comments == ()
    kinds = {each.kind for each in both.ours}
    assert kinds == {"TaskBegin", "TaskEnd", "RegionBegin", "RegionEnd", "Log"}
    ours, theirs = by_goroutine(both.ours), by_goroutine(both.theirs)
    assert len(ours) > 20
    apart_ns = []
    for goid, part in ours.items():
        same = same_part(part, theirs[goid])
        assert same, (goid, part, theirs[goid])
        apart_ns += [
            abs(our.time_ns - their.time_ns) for our, their in zip(part, same, strict=True)
        ]
    if minor not in WITHOUT_CLOCK:
        # A thread may lose its processor after the probe and before Go takes the time.
        assert median(apart_ns) < EDGE_NS
        begin_ns, end_ns = both.timeline.begin_ns + EDGE_NS, both.timeline.end_ns - EDGE_NS
        inside = [each for each in both.theirs if begin_ns < each.time_ns < end_ns]
        mine = [each for each in both.ours if begin_ns < each.time_ns < end_ns]
        assert abs(len(inside) - len(mine)) <= len(ours)


@pytest.mark.full
@pytest.mark.parametrize("minor", versions())
def test_what_contradicts_itself_gives_a_trace_that_go_reads(minor: str, tmp_path: Path) -> None:
    both = recorded("misuse", minor, tmp_path)
    assert {each.kind for each in both.ours} >= {"TaskBegin", "TaskEnd", "RegionBegin"}
    assert len(both.ours) > 20


@pytest.mark.full
def test_waits_of_tasks_are_those_of_their_regions(tmp_path: Path) -> None:
    """An order waits for a dish as long as this is cooked, a dish sleeps."""
    types = {of.name: of for of in task_types(recorded("work", NEWEST, tmp_path).timeline)}
    order, dish = types["order"], types["dish"]
    assert min(len(order.lengths_ns), len(dish.lengths_ns)) > 10
    assert order.lengths_ns[0] >= SHORT_NS + LONG_NS
    assert dish.lengths_ns[0] >= LONG_NS
    assert set(dish.waits_ns) <= {"sleep", "sync.Mutex.Lock main.counter"}
    assert set(order.waits_ns) >= {"chan receive", "sleep"}
    assert order.waits_ns["chan receive"] >= len(order.lengths_ns) * LONG_NS


@pytest.mark.full
def test_what_can_not_be_seen_is_reported(tmp_path: Path) -> None:
    """Here Go's tracer is on, so that even StartRegion calls the runtime."""
    both = recorded("work", NEWEST, tmp_path, tags=("withregions",))
    (comment,) = both.timeline.comments
    assert comment.startswith(
        "not recorded: runtime/trace.StartRegion and runtime/trace.Logf, which call the runtime"
    )
    assert {'Type="started"' in each.text for each in both.ours} == {True, False}


@pytest.mark.parametrize("build", pairs())
def test_each_build_has_a_place_for_each_function(build: tuple[str, str]) -> None:
    minor, mode = build
    with ElfFile.open(program("annotated", minor, mode)) as elf:
        found = annotation_sites(GoBinary.open(elf))
    assert {site.moment for site in found.sites} == set(AnnotationMoment)
    assert found.missing == ()
