"""Turns the sums of goroutine samples of one process into its wall profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ebpfprof.profile.behaviour import IdleBehaviour, together
from ebpfprof.profile.idle_comments import idle_comments
from ebpfprof.profile.model import Label, Location, Sample
from ebpfprof.profile.operations import STATE
from ebpfprof.profilers.goroutines.kinds import WALL
from ebpfprof.profilers.labels import chosen
from ebpfprof.profilers.sample_coverage import SampleCoverage

if TYPE_CHECKING:
    from ebpfprof.goruntime.samples.state_sums import GoroutineState, StateTotals
    from ebpfprof.profilers.goroutines.goroutine_stacks import GoroutineStacks
    from ebpfprof.profilers.report_builder import ReportBuilder


@dataclass(slots=True, kw_only=True)
class ReadWall:
    """The sums of the samples of a process, and facts about them: see GoroutineSampler."""

    totals: StateTotals
    idle: Mapping[GoroutineState, IdleBehaviour]
    torn: int
    unknown: int
    late_ns: float


_Key = tuple[tuple[Location, ...], tuple[Label, ...]]


@dataclass(slots=True)
class _Sum:
    hits: int = 0
    ns: int = 0
    variance: float = 0.0
    behaviours: list[IdleBehaviour | None] = field(default_factory=list)


def report(reading: ReadWall, stacks: GoroutineStacks, builder: ReportBuilder) -> None:
    """Add the wall profile, without the runtime's own goroutines."""
    sums: dict[_Key, _Sum] = {}
    try:
        options = builder.options
        sums = _sums(reading, stacks, options.labels, has_wrappers=options.by_handler)
    except Exception as error:  # any error: the other profiles matter more
        builder.fail(error)
    samples = [
        Sample(stack, (total.hits, total.ns), labels, total.variance, together(total.behaviours))
        for (stack, labels), total in sums.items()
    ]
    coverage = SampleCoverage(
        reading.totals.samples,
        reading.totals.length_ns,
        reading.torn,
        reading.unknown,
        reading.late_ns,
    )
    account = replace(
        builder.account(WALL, f"{WALL.title} profile"),
        coverage=coverage,
        idle=idle_comments(WALL.name, samples),
        spread={key: (total.ns, total.variance) for key, total in sums.items()},
    )
    profile = WALL.make_profile(
        samples,
        stacks.go.mappings,
        period=max(1, round(reading.totals.mean_ns)),
        time_ns=builder.recording.started_unix_ns,
        duration_ns=account.length_ns,
    )
    builder.add(profile, account)


def _sums(
    reading: ReadWall,
    stacks: GoroutineStacks,
    wanted: tuple[str, ...] | None,
    *,
    has_wrappers: bool,
) -> dict[_Key, _Sum]:
    states = reading.totals.states
    stacks.look_up(pc for state in states for pc in (*state.pcs, state.start_pc) if pc)
    sums = defaultdict[_Key, _Sum](_Sum)
    for state, total in states.items():
        if state.start_pc and stacks.is_system(state.start_pc, state.pcs, state.word):
            continue
        labels = (*chosen(state.labels or (), wanted), Label(STATE, state.word))
        stack = stacks.of(state.word, state.pcs, state.start_pc, has_wrapper=has_wrappers)
        charged = sums[stack, labels]
        charged.hits += total.hits
        charged.ns += total.ns
        charged.variance += total.variance
        charged.behaviours.append(reading.idle.get(state))
    return {key: charged for key, charged in sums.items() if charged.ns > 0}
