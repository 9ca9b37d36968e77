"""Waits by handler, against a server with 20 routes that logs its own waiting for each."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.handlers import handler_label, with_handlers
from ebpfprof.profile.model import Profile
from tests.builds import versions
from tests.differential.mutexes import agree_once
from tests.kernel.programs import program
from tests.recorder import only_profile, recording
from tests.targets_run import SLOWNESS, Target

ROUTES: Final = 20
REQUESTS: Final = 25
_NS_A_WAIT: Final = 50_000 * SLOWNESS


@dataclass(frozen=True)
class Run:
    """Our profile, Go's own, what the routes logged, and what the terminal showed.

    `log` has for each route how often it waited, for how long until its waker ran, and until it
    went on, in nanoseconds.
    """

    ours: Profile
    go: Profile
    log: list[tuple[int, int, int]]
    screen: str


def record(version: str, folder: Path, *arguments: str, requests: int = REQUESTS) -> Run:
    own = folder / "go.prof"
    with Target.start(program("routes", version)) as target:
        with recording(target.pid, folder, "--by-handler", *arguments) as recorder:
            target.ask(f"go {requests}", "done")
            log = [tuple(route) for route in json.loads(target.expect("["))]
            recorder.interrupt()
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        target.ask(f"write {own}", "written")
    go = pprof.decode(own.read_bytes(), kind="block")
    return Run(only_profile(folder), with_handlers([go])[0], log, finished.stdout.decode())


def by_handler(profile: Profile) -> dict[str, tuple[int, int]]:
    """The number of waits and their nanoseconds of each handler."""
    counts, delays = Counter[str](), Counter[str]()
    for sample in profile.samples:
        name = handler_label(sample) or ""
        counts[name] += sample.values[0]
        delays[name] += sample.values[1]
    return {name: (counts[name], delays[name]) for name in counts}


def route(number: int) -> str:
    return f"main.route{number:02d}"


@pytest.mark.parametrize("version", versions())
def test_waits_by_handler_equal_the_logs_of_routes_and_gos_own(
    version: str, tmp_path: Path
) -> None:
    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(version, folder)
        ours, go = by_handler(run.ours), by_handler(run.go)
        assert {name for name in ours if name.startswith("main.")} == set(map(route, range(ROUTES)))
        wrong = {}
        for number, (count, woken_ns, waited_ns) in enumerate(run.log):
            name = route(number)
            # go waitAndSend(...) of the last two routes has a wrapper, as closures of others.
            assert ours[name][0] == go[name][0]
            if ours[name][0] != count:  # a wait that ended before the goroutine parked
                wrong[name] = f"{ours[name][0]} waits instead of {count}"
            assert ours[name][1] <= waited_ns
            for of, ns in (("Go", go[name][1]), ("the log", woken_ns)):
                if abs(ours[name][1] - ns) > max(ns // 100, count * _NS_A_WAIT):
                    wrong[f"{name}, {of}"] = f"{ours[name][1]} ns instead of {ns}"
        assert "by handler:" in run.screen
        assert "main.route19" in run.screen
        assert "channels 100 %" in run.screen
        return wrong

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("version", versions("1.22", "1.27"))
def test_estimates_by_handler_are_within_their_errors(version: str, tmp_path: Path) -> None:
    run = record(version, tmp_path, "--one-in-eight", requests=400)
    variances = defaultdict[str, float](float)
    for sample in run.ours.samples:
        variances[handler_label(sample) or ""] += sample.variance
    ours = by_handler(run.ours)
    far = []
    for number, (_, woken_ns, _) in enumerate(run.log):
        error = math.sqrt(variances[route(number)])
        if abs(ours[route(number)][1] - woken_ns) > 3 * error + woken_ns // 100:
            far.append(f"{route(number)}: {ours[route(number)][1]} +- {error} not {woken_ns}")
    assert len(far) <= 1, far
