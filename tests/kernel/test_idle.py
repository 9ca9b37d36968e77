"""Idle waits of a real program: only waits for work are hidden."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.idle import rule_of, split
from ebpfprof.profile.model import Kind, Profile, Sample
from ebpfprof.profile.operations import STATE
from tests.builds import versions
from tests.kernel.programs import program
from tests.recorder import only_profile, recording, run
from tests.targets_run import Target

VERSIONS: Final = ("1.19", "1.27")
# By a part of the name of the function that waits: the rule that it is idle by.
IDLE: Final = {
    "main.signalLoop": "worker waiting for work",
    "main.newPool.func": "worker waiting for work",
    "main.(*queue).dispatcher": "worker waiting for work",
    "main.(*shop).work": "worker waiting for work",
    "main.tickLoop": "loop waiting in a select",
    "net/http.(*persistConn).readLoop": "HTTP client connection",
    "net/http.(*persistConn).writeLoop": "HTTP client connection",
    "os/signal.NotifyContext.func": "signals",
    "propagateCancel.func": "watching a context",
    "runtime.ensureSigM.func": "Go's runtime",
    "main.main": "main goroutine",
}
# By a function: what goroutines that it stands on the stack of wait for, and that is no idle wait.
PROBLEMS: Final = {
    "main.(*shop).count": "sync.(*Mutex).Lock",
    "main.(*shop).buy": "runtime.chansend1",
    "main.get": "runtime.selectgo",
    "main.rush": "sync.(*WaitGroup).Wait",
}


def recorded(version: str, folder: Path) -> dict[str, Profile]:
    """The profiles of waits that ended and of those that are open, while it had work and then not.

    By kind.
    """
    with (
        Target.start(program("idle", version)) as target,
        recording(target.pid, folder, "--open") as recorder,
    ):
        for _ in range(2):
            target.ask("work", "done")
        recorder.interrupt()
        finished = recorder.finish()
        assert finished.code == 0, finished.stderr
    kinds: tuple[Kind, ...] = ("block", "open")
    return {
        kind: pprof.decode(path.read_bytes(), kind=kind)
        for kind in kinds
        for path in folder.glob(f"idle-{target.pid}-*.{kind}.pb.gz")
    }


def functions(sample: Sample) -> list[str]:
    return [frame.function for location in sample.locations for frame in location.frames]


def sums(samples: tuple[Sample, ...]) -> tuple[int, int]:
    return sum(s.values[0] for s in samples), sum(s.values[1] for s in samples)


@pytest.mark.parametrize("version", versions(*VERSIONS))
def test_waits_for_work_are_hidden_and_problems_are_not(version: str, tmp_path: Path) -> None:
    profiles = recorded(version, tmp_path)
    profile = profiles["block"]
    kept, hidden = split(profile)

    by_waiter = defaultdict(set)
    shown = defaultdict(set)
    for sample in profile.samples:
        leaf, waiter, *_ = names = functions(sample)
        rule = rule_of(profile.kind, sample)
        for part in IDLE if leaf != "runtime.chansend1" else ():  # a send is never idle
            if waiter.rstrip("0123456789").endswith(part):
                by_waiter[part].add(rule.name if rule else None)
        if rule is None:
            for name in names:
                shown[name].add(leaf)
    assert by_waiter == {part: {name} for part, name in IDLE.items()}
    for name, operation in PROBLEMS.items():
        assert operation in shown[name], name
    # All waits of requests are shown. After a request net/http waits for a goroutine of its own.
    of_requests = {
        name if rule_of("block", sample) else ""
        for sample in profile.samples
        if "net/http.(*conn).serve" in functions(sample)
        for name in [functions(sample)[1]]
    }
    assert of_requests <= {"", "net/http.(*connReader).abortPendingRead"}
    assert {each.rule.name for each in hidden} - {"watching a client"} == set(IDLE.values())
    assert not any(rule_of("block", sample) for sample in kept.samples)

    count, delay_ns = sums(kept.samples)
    taken = sum(each.count for each in hidden), sum(each.delay_ns for each in hidden)
    assert (count + taken[0], delay_ns + taken[1]) == sums(profile.samples)
    # Most of it was noise.
    assert taken[1] > delay_ns

    # Without work, all that it does is to wait for some.
    still, idle = split(profiles["open"])
    assert [functions(sample) for sample in still.samples] == []
    assert sum(each.count for each in idle) > 10


# What the wall profile has besides: by the function within which goroutines wait.
IDLE_IN_WALL: Final = {
    "os/signal.loop": "receiving signals",
    "net/http.(*Server).Serve": "accepting connections",
    "net/http.(*conn).serve": "idle HTTP connection",
    "net/http.(*persistConn).readLoop": "reading answers",
    "net/http.(*persistConn).writeLoop": "HTTP client connection",
    "main.signalLoop": "worker waiting for work",
    "main.main": "main goroutine",
}


@pytest.mark.parametrize("version", versions(*VERSIONS))
def test_a_server_at_rest_is_idle_in_the_wall_profile(version: str, tmp_path: Path) -> None:
    with Target.start(program("idle", version)) as target:
        target.ask("work", "done")
        arguments = ("--profile", "wall", "-d", "0.5", "--hide-idle")
        finished = run("--pid", str(target.pid), *arguments, folder=tmp_path)
    assert finished.code == 0, finished.stderr
    profile = only_profile(tmp_path)
    found = defaultdict(set)
    for sample in profile.samples:
        if state_of(sample) in ("IO wait", "syscall", "select", "chan receive"):
            rule = rule_of("wall", sample)
            for name in functions(sample):
                if name in IDLE_IN_WALL:
                    found[name].add(rule.name if rule else None)
    assert found == {name: {rule} for name, rule in IDLE_IN_WALL.items()}
    shown = finished.stdout.decode()
    assert "Hidden as idle: " in shown
    assert "net/http" not in shown.partition("Hidden as idle: ")[0]


def state_of(sample: Sample) -> str:
    return next(str(label.value) for label in sample.labels if label.key == STATE)
