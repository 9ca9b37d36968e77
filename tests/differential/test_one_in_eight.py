"""One wait in eight, as Go's scheduler tracks them, against Go's own profile of the same run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.model import Label, Profile
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.rows import KnownStack, StackSums, StackTotal, WaitsConfig
from ebpfprof.profilers.waits.wait_samples import wait_samples
from ebpfprof.profilers.waits.wait_stacks import StackTranslator
from tests import oracle
from tests.builds import NEWEST, builds, versions
from tests.differential.stacks import Stack, by_stack, delay_differences, shown
from tests.go_target import inspect
from tests.kernel.unharmed import go_on, stop
from tests.recorder import event_count, only_profile, recording
from tests.targets_run import Target
from tests.toolchains import toolchain

BLOCKOPS = Path(__file__).parent.parent / "targets" / "blockops"
TICKER = BLOCKOPS.parent / "ticker"
_EVENTS = 20_000
_LONG_NS = 60_000_000
_PERIOD = 8
_REPEATS = 2  # of a semaphore that seemed not to have any
CONFIG = WaitsConfig(block=True, mutex=False, one_in_eight=True, labels=False)
# In a regular loop a goroutine's error is below the period. In random order, with the standard
# deviation of one sample in eight; parks that follow another one add to it.
_DEVIATIONS = 6


@pytest.mark.parametrize("minor", versions("1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27"))
def test_of_a_program_that_tracks_every_stop_all_waits_are_recorded(
    minor: str, tmp_path: Path
) -> None:
    """Go 1.20 and newer do so if runtime.casgstatusAlwaysTrack is set, as this program does."""
    checks_linkname = minor in ("1.21", "1.22")  # these know no way not to
    program = toolchain(minor).build(BLOCKOPS, tags=("trackall",), checks_linkname=checks_linkname)
    go, ours, again = recorded(program, tmp_path, weight=1)
    theirs, mine = by_stack(go), by_stack(ours)
    assert theirs.keys() - mine.keys() == set()
    for stack, value in mine.items():
        if stack not in theirs:  # it was made runnable while the recording ended
            assert value.count <= 1
            continue
        # After a goroutine begins to run, others may release or take the semaphore.
        allowed = again[stack] // 5 + 8 if again.get(stack) else _REPEATS * is_semaphore(stack)
        difference = value.count - theirs[stack].count
        assert abs(difference) <= allowed, (difference, again.get(stack), shown(stack))
    exact = {shown(stack) for stack in theirs if not again.get(stack)}
    assert not exact & delay_differences(go, ours).keys()


@pytest.mark.parametrize(
    ("version", "mode"),
    builds(
        *((minor, "plain") for minor in ("1.19", "1.21", "1.22", "1.23", "1.24", "1.25", "1.26")),
        *(("1.22", mode) for mode in ("debug", "pgo", "pgopark")),
        *(("1.27", mode) for mode in ("debug", "pie", "cgo", "stripped", "pgo", "pgopark")),
        ("1.19", "debug"),
        ("1.27", "plain"),
    ),
)
def test_counts_are_gos_within_the_error_of_one_in_eight(
    version: str, mode: str, tmp_path: Path
) -> None:
    program = toolchain(version).build(BLOCKOPS, mode)
    go, ours, again = recorded(program, tmp_path, weight=_PERIOD)
    theirs, mine = by_stack(go), by_stack(ours)
    for stack, value in theirs.items():
        count = mine[stack].count if stack in mine else 0
        parks = value.count + again.get(stack, 0)
        deviation = math.sqrt((_PERIOD - 1) * parks)
        allowed = _DEVIATIONS * deviation + _PERIOD + again.get(stack, 0) / 5
        assert abs(count - value.count) <= allowed, shown(stack)
    for stack in mine.keys() - theirs.keys():
        assert mine[stack].count <= _PERIOD, shown(stack)
    assert sum(value.count for value in mine.values()) == pytest.approx(
        sum(value.count for value in theirs.values()), rel=0.03
    )


def test_the_command_records_one_wait_in_eight(tmp_path: Path) -> None:
    program = toolchain(NEWEST).build(BLOCKOPS)
    own = tmp_path / "go.prof"
    arguments = ("-blockrate=1", f"-profile={own}", "-only=^$", f"-stress={_EVENTS}")
    with Target.start(program, *arguments) as target:
        with recording(target.pid, tmp_path, "--one-in-eight") as recorder:
            target.ask("go", "done")
            target.expect("{")
            recorder.interrupt()
            finished = recorder.finish()
        target.ask("write", "written")
    assert finished.code == 0, finished.stderr
    assert b"Sampled (one wait in eight). Use --max-overhead 0" in finished.stdout
    ours = only_profile(tmp_path)
    assert any("one wait in eight" in comment for comment in ours.comments)
    assert any("standard error" in comment for comment in ours.comments)
    go = pprof.decode(own.read_bytes(), kind="block")
    assert event_count(ours) == pytest.approx(event_count(go), rel=0.03)


def test_squares_of_short_and_of_long_delays_add_up() -> None:
    """They are kept in different units: an error of delays is made of both."""
    program = toolchain(NEWEST).build(TICKER)
    with (
        Target.start(program) as target,
        Process(target.pid) as process,
        WaitsCollector(1, CONFIG) as waits,
    ):
        oracle.track_every_stop(target.pid, program)
        waits.load()
        waits.attach_one_in_eight(0, inspect(process))
        target.ask("wait", "done")  # its waits last for a millisecond
        stop(target.pid)  # all threads: the maps are read one after the other
        short = received(waits.tables.take(0))
        time.sleep(_LONG_NS / 1e9)  # that is how long one of them lasts
        go_on(target.pid)
        target.ask("wait", "done")
        stop(target.pid)
        more = received(waits.tables.take(0))
        go_on(target.pid)
    for sums in (short, more):
        delay_ns = sums.delay_ns / _PERIOD
        # The mean of squares is at least the square of the mean; they are rounded down.
        assert 0.9 * delay_ns**2 / sums.parks < sums.squares < delay_ns**2
    assert more.squares > 0.9 * _LONG_NS**2


def is_semaphore(stack: Stack) -> bool:
    """Whether it waits for a lock or another semaphore, for which a goroutine may park again."""
    return any(name in shown(stack) for name in ("sync.", "poll.", "semacquire"))


def received(sums: Mapping[KnownStack, StackSums]) -> StackSums:
    """The waits of the only goroutine that receives, which are the most."""
    return max(sums.values(), key=lambda each: each.parks)


def recorded(
    program: Path, folder: Path, *, weight: int
) -> tuple[Profile, Profile, dict[Stack, int]]:
    """Go's profile, ours, and how many parks of a stack were followed by another one."""
    own = folder / "go.prof"
    arguments = ("-blockrate=1", f"-profile={own}", "-only=^$", f"-stress={_EVENTS}")
    with (
        Target.start(program, *arguments) as target,
        Process(target.pid) as process,
        WaitsCollector(1, CONFIG) as waits,
    ):
        go = inspect(process)
        waits.load()
        waits.attach_one_in_eight(0, go)
        target.ask("go", "done")
        target.expect("{")
        waits.detach_target(0)
        assert not any(loss.count for loss in waits.losses())
        sums = waits.tables.take(0)
        # Each goroutine that was woken began to run, and was found at that place, too.
        assert sum(each.runs for each in sums.values()) == pytest.approx(
            sum(each.parks for each in sums.values()), rel=0.02
        )
        assert all(each.runnable_ns for each in sums.values() if each.runs > _PERIOD)
        target.ask("write", "written")
        theirs = pprof.decode(own.read_bytes(), kind="block")
        ours = with_waits(theirs, sums, go, weight)
        parks_again = {
            stack: StackSums(count=_PERIOD * each.again, delay_ns=each.delay_ns)
            for stack, each in sums.items()
            if each.again
        }
        again = by_stack(with_waits(theirs, parks_again, go, weight))
    return theirs, ours, {stack: value.count for stack, value in again.items()}


def with_waits(
    profile: Profile, sums: Mapping[KnownStack, StackSums], go: GoTarget, weight: int
) -> Profile:
    """The profile with other samples; one in eight was tracked, or each if `weight` is 1."""
    totals: list[tuple[StackTotal, tuple[Label, ...]]] = [
        (
            StackTotal(
                stack.kind,
                0,
                stack.return_pcs,
                each.count * weight / _PERIOD,
                round(each.delay_ns * weight / _PERIOD),
            ),
            (),
        )
        for stack, tracked in sums.items()
        for each in [tracked.as_events(tracked)]
        if each.count
    ]
    return replace(profile, samples=tuple(wait_samples(StackTranslator(go), totals).samples))
