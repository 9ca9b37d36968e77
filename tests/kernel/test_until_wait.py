"""Conditions that end a trace: waits of all kinds, as samples at real programs find them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ebpfprof.commands.until_wait import UntilWait, wait_conditions
from ebpfprof.errors import ExitCode
from ebpfprof.process.process import Target as Process
from ebpfprof.tracing.triggers import Trigger
from tests.builds import versions
from tests.go_target import inspect
from tests.kernel.programs import NEWEST, program
from tests.kernel.verbs import verb
from tests.targets_run import DEADLINE_S, Target

LEAST_S = 0.15
SHORT_S = 0.05
LONG_S = 0.25  # a call of 5 ms takes longer only where a thread gets no processor
SAMPLES = 25
# Before and since system calls count in no field of runtime.g.
VERSIONS = ("1.21", NEWEST)


@contextmanager
def stuck(minor: str = NEWEST, *, polls: bool = False) -> Iterator[Target]:
    """With `polls`, main waits for input in no system call."""
    with Target.start(program("hung", minor), *(["polling"] if polls else [])) as target:
        yield target
        target.kill()


@contextmanager
def watching(target: Target, *typed: tuple[str, float]) -> Iterator[Trigger]:
    with Process(target.pid) as process:
        go = inspect(process)
        conditions = wait_conditions([UntilWait(*each) for each in typed], go)
        yield Trigger(go, waits=conditions)


def why(trigger: Trigger, samples: int = 1 << 30) -> str:
    """What ends the recording; "" if nothing does in so many samples."""
    until_s = time.monotonic() + DEADLINE_S
    while trigger.samples < samples and not trigger.is_met():
        assert time.monotonic() < until_s
        time.sleep(0.002)
    return trigger.why


def lasted_ns(said: str) -> float:
    found = re.search(r"for at least ([\d.]+) (ms|s)", said)
    assert found, said
    return float(found[1]) * {"ms": 1e6, "s": 1e9}[found[2]]


@pytest.mark.parametrize(
    ("hang", "what", "did"),
    [
        ("receive", "chan receive", r"waited for .* \(chan receive\)"),
        ("select", "select", r"waited for .* \(select\)"),
        ("sleep", "sleep", r"waited for .* \(sleep\)"),
        ("socket", "io wait", r"waited for .* \(IO wait\)"),
        ("receive", "main.handle", r"waited for .* \(chan receive\)"),
        ("call", "syscall", "been in a system call for .*"),
        ("call", "main.handle", "been in a system call for .*"),
    ],
)
def test_a_wait_that_lasts_is_found_and_not_too_early(hang: str, what: str, did: str) -> None:
    conditions = [(what, LEAST_S), ("locks", SHORT_S)]
    with stuck(polls=hang == "call") as target, watching(target, *conditions) as trigger:
        assert not trigger.is_met()
        _, goid, began_ns = target.ask(f"hang {hang}", "hangs").split()
        said = why(trigger)
        really_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - int(began_ns)
        assert re.fullmatch(rf"goroutine {goid} has {did}: main\.handle, main\.go:\d+", said)
        assert LEAST_S * 1e9 * 0.999 <= lasted_ns(said) <= really_ns


def test_a_goroutine_that_gets_no_processor_is_found() -> None:
    with stuck() as target, watching(target, ("runnable", SHORT_S)) as trigger:
        target.ask("hang receive", "hangs")
        target.ask("crowd 40", "begun")
        said = why(trigger)
        places = (
            r"main\.compute, main",
            r"ebpfprof\.test/harness\.Spin, helpers",
            r"time\.\w+, time",  # called by Spin: a goroutine is preempted at any instruction
            r"syscall\.Syscall, syscall_linux",  # main itself
        )
        place = rf"({'|'.join(places)})\.go:\d+"
        assert re.fullmatch(
            rf"goroutine \d+ has been runnable for at least \S+ ms, without a processor: {place}",
            said,
        )


def test_waits_for_work_count_only_if_they_are_named() -> None:
    reasons = [("chan receive", SHORT_S), ("select", SHORT_S)]
    with stuck() as target:
        _, goid, _ = target.ask("worker", "hangs").split()
        with watching(target, *reasons) as trigger:
            assert why(trigger, SAMPLES) == ""
        with watching(target, *reasons, ("main.worker", SHORT_S)) as trigger:
            assert why(trigger).startswith(f"goroutine {goid} has waited")


@pytest.mark.parametrize("minor", versions(*VERSIONS))
@pytest.mark.parametrize(
    ("work", "conditions"),
    [
        ("calls", [("syscall", LONG_S), ("main.calls", LONG_S)]),
        ("pingpong", [("chan receive", LONG_S), ("main.catch", LONG_S)]),
    ],
)
def test_many_short_waits_are_not_taken_for_a_long_one(
    work: str, conditions: list[tuple[str, float]], minor: str
) -> None:
    with stuck(minor, polls=True) as target:
        target.ask(work, "begun")
        with watching(target, *conditions) as trigger:
            assert why(trigger, SAMPLES) == ""


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "chan recieve=1s",
            r"no wait reason 'chan recieve'.*Did you mean chan receive\? Reasons are",
        ),
        ("main.nobody=1s", "the program has no such function"),
        ("select=10ms", 'TIME must be a time of at least 50ms, such as "50ms", not "10ms"'),
        ("select=", 'TIME must be a time of at least 50ms, such as "50ms", not ""'),
        ("=2s", "WHAT is empty"),
    ],
)
def test_what_it_does_not_know_it_says(typed: str, said: str) -> None:
    with stuck() as target:
        found = verb("trace", str(target.pid), "--until-wait", typed)
    assert found.code == ExitCode.USAGE
    assert re.search(said, found.stderr.replace("\n", " "))
