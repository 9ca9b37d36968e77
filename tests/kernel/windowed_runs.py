"""Recordings of the target `load` with a bound on the overhead, and of what Go counts itself."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf, sqrt
from pathlib import Path
from typing import Any

from ebpfprof.export import pprof
from ebpfprof.overhead.cost import Overhead
from ebpfprof.profile.model import Lock, Profile, Sample
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import Report
from ebpfprof.profilers.waits.coverage import WaitsCoverage
from ebpfprof.recording.session import Session
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.kernel.tampered import command
from tests.recorder import Finished, Recorder
from tests.targets_run import Target

LENGTH_S = 4
# Load of other programs on this machine changes the pace of the target from one window to the next.
MUCH = 0.2
ATTEMPTS = 4


@dataclass(frozen=True)
class Run:
    """A run of `load` under both profilers: Go's own profiles and ours, by kind."""

    go: dict[str, Profile]
    ours: dict[str, Profile]
    coverage: WaitsCoverage
    overhead: Overhead
    locks: list[Lock]


def reports_of_work(session: Session, target: Target) -> list[Report]:
    """Record until the target has done what it does after "go". Fails if anything failed."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(target.ask, "go", "done")
        session.wait(inf, lambda _: done.done())
        done.result()
    reports = session.finish()
    assert session.failures() == []
    return reports


def record_load(folder: Path, version: str, options: Options, *arguments: str) -> Run:
    own = {kind: folder / kind for kind in ("block", "mutex")}
    writes = [f"-{kind}={path}" for kind, path in own.items()]
    length = f"-length={LENGTH_S}s"
    with Target.start(program("load", version), length, *writes, *arguments) as target:
        with Session([target.pid], options) as session:
            session.start()
            (report,) = reports_of_work(session, target)
            (overhead,) = session.overheads()
        assert not has_probes(target.pid)
        target.ask("write", "written")
    assert isinstance(report.coverage, WaitsCoverage)
    go = {
        "block": pprof.decode(own["block"].read_bytes(), kind="block"),
        "mutex": pprof.decode(own["mutex"].read_bytes(), kind="mutex"),
    }
    return Run(
        go,
        {profile.kind: profile for profile in report.profiles},
        report.coverage,
        overhead,
        report.locks,
    )


def values_below(profile: Profile, function: str) -> tuple[int, int]:
    """Count and delay (ns) of all stacks in which there is a function or method of that name."""
    found = [sample.values for sample in profile.samples if is_below(sample, function)]
    return sum(count for count, _ in found), sum(delay_ns for _, delay_ns in found)


def is_below(sample: Sample, function: str) -> bool:
    name = re.compile(rf"main\.(\(\*?\w+\)\.)?{function}\b")
    return any(name.match(f.function) for at in sample.locations for f in at.frames)


def error_below(profile: Profile, function: str) -> float:
    """The standard error of the delay (ns) of the same stacks."""
    return sqrt(sum(s.variance for s in profile.samples if is_below(s, function)))


def record_one_in_eight(folder: Path, version: str, kinds: tuple[str, ...], **more: Any) -> Run:  # noqa: ANN401 (as Options has it)
    """Record one wait in eight all the time, as --one-in-eight does."""
    (folder / "all").mkdir()
    options = Options(kinds=kinds, max_overhead=0, one_in_eight=True, **more)
    run = record_load(folder / "all", version, options)
    assert run.coverage.eighth_ns == run.coverage.length_ns
    return run


def record_thinned(folder: Path, version: str, kinds: tuple[str, ...], **more: Any) -> Run:  # noqa: ANN401 (as Options has it)
    """Record with a bound that allows one wait in eight all the time, but not every wait."""
    for attempt in range(ATTEMPTS):
        (folder / str(attempt)).mkdir()
        options = Options(kinds=kinds, max_overhead=10, **more)
        run = record_load(folder / str(attempt), version, options)
        if run.coverage.eighth_ns > run.coverage.length_ns / 2:
            return run
    raise AssertionError(f"{run.coverage} in the last of {ATTEMPTS} recordings")


def record_windows(folder: Path, version: str, kinds: tuple[str, ...], **more: Any) -> Run:  # noqa: ANN401 (as Options has it)
    """Record until there was time for a few windows: on a busy machine the first costs too much."""
    for attempt in range(ATTEMPTS):
        (folder / str(attempt)).mkdir()
        options = Options(kinds=kinds, max_overhead=1, **more)
        run = record_load(folder / str(attempt), version, options)
        if run.coverage.windows > 3:
            return run
    raise AssertionError(f"{run.coverage.windows} windows in the last of {ATTEMPTS} recordings")


def pingpong_recorded(tampering: str, folder: Path, *options: str) -> tuple[int, Finished]:
    """Record a program that waits all the time, by a tampered command, until that ends by itself.

    Returns the pid and how it ended. No probe is left.
    """
    with Target.start(program("pingpong"), "-sends=1000000000") as target:
        arguments = ("--pid", str(target.pid), *options)
        recorder = Recorder(arguments, folder, command=command(tampering))
        try:
            recorder.wait_until_recording()
            target.say("go")
            finished = recorder.finish()
        finally:
            recorder.close()
        assert not has_probes(target.pid)
        target.kill()
    return target.pid, finished
