"""Goroutines that are idle by behaviour, and others that wait as long because of a problem."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.idle import rule_of
from ebpfprof.profile.model import Profile
from ebpfprof.profile.operations import waiting_part
from tests.builds import in_full, versions
from tests.kernel.programs import program
from tests.recorder import Finished, run
from tests.targets_run import Target

TIMER: Final = "loop of a timer"
SIGNAL: Final = "loop of a signal"
# By the function that waits: the rule that it is idle by.
LOOPS: Final = {
    "main.beat": TIMER,
    "main.lead": TIMER,
    "main.rearm": TIMER,
    "main.nap": TIMER,
    "main.caught": SIGNAL,
}
# Of these no wait ends within a recording, or none is in a block profile.
NOT_IN_BLOCK: Final = {"main.nap", "main.caught"}
PROBLEMS: Final = {
    *("main.toil", "main.supply", "main.ask", "main.respond", "main.(*bills).settle"),
    *("main.(*bills).owe", "main.stuck", "main.adrift"),
}
BOUNDED: Final = ("--max-overhead", "1")


def recorded(
    folder: Path, version: str, flags: tuple[str, ...], *arguments: str, mode: str = "plain"
) -> Finished:
    with Target.start(program("loops", version, mode), *flags) as target:
        finished = run("--pid", str(target.pid), "-d", "3", *arguments, folder=folder)
    assert finished.code == 0, finished.stderr
    return finished


def profile_in(folder: Path, kind: str) -> Profile:
    (path,) = folder.glob(f"*.{kind}.pb.gz")
    return pprof.decode(path.read_bytes(), kind=kind)


def rules_by_function(profile: Profile) -> dict[str, set[str | None]]:
    """By function of package main that waits: the rules that its waits are idle by."""
    found: dict[str, set[str | None]] = defaultdict(set)
    for sample in filter(waiting_part, profile.samples):  # others were woken, and don't run yet
        inner = next(
            (frame.function for frame in sample.frames if frame.function[:5] == "main."), ""
        )
        rule = rule_of(profile.kind, sample)
        found[inner].add(rule.name if rule else None)
    return found


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("arguments", [("--profile", "wall"), *in_full((("--profile", "block"),))])
def test_loops_of_timers_and_signals_are_idle(
    version: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    finished = recorded(tmp_path, version, (), *arguments, "--hide-idle")
    profile = profile_in(tmp_path, arguments[-1])
    found = rules_by_function(profile)
    for function, rule in LOOPS.items():
        if arguments[-1] == "wall" or function not in NOT_IN_BLOCK:
            assert found[function] == {rule}, function
    shown = finished.stdout.decode()
    table, _, hidden = shown.partition("Hidden as idle: ")
    assert TIMER in hidden
    # A goroutine that was woken may wait for a processor.
    waits = [splitline for splitline in table.splitlines() if " runn" not in splitline]
    assert not any(function in line for function in LOOPS for line in waits)
    reported = [
        comment for comment in profile.comments if comment.startswith("idle: main.rearm (main.go:")
    ]
    assert len(reported) == 1
    assert "one goroutine that waited " in reported[0]
    assert " of the time for a timer (stack " in reported[0]


@pytest.mark.full
@pytest.mark.parametrize("mode", [*in_full("stripped", "pie"), "cgo"])
def test_they_are_idle_however_the_program_was_built(mode: str, tmp_path: Path) -> None:
    recorded(tmp_path, "1.27", (), "--profile", "wall", mode=mode)
    found = rules_by_function(profile_in(tmp_path, "wall"))
    assert {function: found[function] for function in LOOPS} == {
        function: {rule} for function, rule in LOOPS.items()
    }


@pytest.mark.parametrize("version", versions("1.19", "1.27"))
@pytest.mark.parametrize("bound", [*in_full((("--max-overhead", "0"),)), BOUNDED])
def test_waits_for_others_are_not_idle(
    version: str, bound: tuple[str, ...], tmp_path: Path
) -> None:
    kinds = ("--profile", "wall", "--profile", "block", "--open")
    recorded(tmp_path, version, ("-problems",), *kinds, *bound)
    seen = set()
    for kind in ("wall", "block", "open"):
        found = rules_by_function(profile_in(tmp_path, kind))
        for function in PROBLEMS & found.keys():
            assert found[function] == {None}, (kind, function)
            seen.add(function)
    assert seen == PROBLEMS
    # Loops are idle anyway, if they are slow enough for samples to tell.
    found = rules_by_function(profile_in(tmp_path, "wall"))
    assert found["main.caught"] == {SIGNAL}


@pytest.mark.full
@pytest.mark.parametrize("version", versions("1.19", "1.27"))
def test_a_loop_that_holds_a_lock_is_not_idle(version: str, tmp_path: Path) -> None:
    recorded(tmp_path, version, ("-lock",), "--profile", "wall")
    found = rules_by_function(profile_in(tmp_path, "wall"))
    assert found["main.grip"] == {None}
    assert found["main.knock"] == {None}
    assert found["main.nap"] == {TIMER}
