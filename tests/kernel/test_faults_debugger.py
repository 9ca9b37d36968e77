"""A debugger traces the target before, during and after a recording; both work as they should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from symbolizer import ElfFile, GoBinary
from tests.kernel.debugger import debugger
from tests.kernel.kernel_state import has_probes, probed
from tests.kernel.programs import program
from tests.kernel.unharmed import (
    ALL_PROFILES,
    check,
    checker,
    end_without_traceback,
    what_happened,
    whole_profiles,
)
from tests.kernel.verbs import verb
from tests.recorder import recording, run
from tests.targets_run import Target

# Else signals keep coming to threads that are stepped, ever more than they can handle.
NO_PREEMPTION = {"GODEBUG": "asyncpreemptoff=1"}


def gopark() -> int:
    """Where a debugger would put a breakpoint: at the first instruction of a function."""
    with ElfFile.open(program("checker")) as elf:
        (function,) = GoBinary.open(elf).functions_named("runtime.gopark")
    return function.entry


def over_probes(tracing: Target, pid: int) -> None:
    """Step over probes and meet a breakpoint between them; all threads are stopped then."""
    addresses = " ".join(f"{address:x}" for address in probed(pid))
    assert addresses
    tracing.ask(f"step 5 {addresses}", "stepped")
    tracing.ask(f"break {gopark():x} 3", "met")


def warnings(text: str) -> list[str]:
    """The lines that warn of a debugger."""
    return re.findall(r"^(?:.*: )?(Process \d+ .*traced by .*)$", text, re.MULTILINE)


def warned(folder: Path) -> list[str]:
    """The same, of each profile."""
    return [said for each in whole_profiles(folder) for said in warnings("\n".join(each.comments))]


@pytest.mark.alone
def test_a_debugger_that_traced_before_works_and_is_reported(tmp_path: Path) -> None:
    """Probes are attached and detached while the debugger has stopped the target."""
    with checker(env=NO_PREEMPTION) as target, debugger(target.pid) as tracing:
        tracing.ask("attach", "attached")
        with recording(target.pid, tmp_path, *ALL_PROFILES) as recorder:
            assert has_probes(target.pid)
            over_probes(tracing, target.pid)
            tracing.ask("continue", "continued")
            check(target)
            tracing.ask("stop", "stopped")
            (said,) = warnings(end_without_traceback(recorder))
        assert not has_probes(target.pid)
        assert f"Process {target.pid} is traced by process {tracing.pid} (" in said
        assert warned(tmp_path) == [said] * 4
        tracing.ask("detach", "detached")
    assert all(profile.samples for profile in what_happened(tmp_path))


@pytest.mark.alone
@pytest.mark.full
def test_a_debugger_that_detaches_while_recording_is_not_reported(tmp_path: Path) -> None:
    with (
        checker(env=NO_PREEMPTION) as target,
        recording(target.pid, tmp_path, *ALL_PROFILES) as recorder,
    ):
        with debugger(target.pid) as tracing:
            tracing.ask("attach", "attached")
            over_probes(tracing, target.pid)
            tracing.ask("detach", "detached")
        check(target)
        assert has_probes(target.pid)
        assert warnings(end_without_traceback(recorder)) == []
    assert all(profile.samples for profile in what_happened(tmp_path))


def test_a_debugger_that_stays_is_reported_at_the_end(tmp_path: Path) -> None:
    with (
        Target.start(program("ticker")) as target,
        recording(target.pid, tmp_path, *ALL_PROFILES) as recorder,
        debugger(target.pid) as tracing,
    ):
        tracing.ask("attach", "attached")
        (said,) = warnings(end_without_traceback(recorder))
        assert f"{target.pid} is now traced by process {tracing.pid} (" in said
        assert warned(tmp_path) == [said] * 4


def test_a_debugger_is_reported_only_if_probes_are_attached(tmp_path: Path) -> None:
    with Target.start(program("ticker")) as target, debugger(target.pid) as tracing:
        tracing.ask("attach", "attached")
        brief = ("--pid", str(target.pid), "--duration", "0.1")
        assert warnings(run(*brief, "--profile", "cpu", folder=tmp_path).stderr) == []
        top = ("top", "--pid", str(target.pid), "--profile", "block", "--once")
        assert warnings(verb(*top, "--interval", "0.1").stdout)
        assert warned(tmp_path) == []


@pytest.mark.full
@pytest.mark.parametrize(("name", "is_warned"), [("allocations", True), ("heap", False)])
def test_of_memory_only_the_gates_are_probes(name: str, *, is_warned: bool, tmp_path: Path) -> None:
    """A program that keeps a memory profile is read."""
    with Target.start(program(name)) as target, debugger(target.pid) as tracing:
        tracing.ask("attach", "attached")
        brief = ("--pid", str(target.pid), "--duration", "0.1", "--profile", "heap")
        finished = run(*brief, folder=tmp_path)
        assert finished.code == 0
        assert bool(warnings(finished.stderr)) is bool(warned(tmp_path)) is is_warned


def test_run_does_not_report_itself_as_a_debugger(tmp_path: Path) -> None:
    said = verb("run", "--profile", "block", "--", str(program("brief")), folder=tmp_path)
    assert said.code == 0
    assert "recording" in said.stderr
    assert warnings(said.stderr) == warned(tmp_path) == []


@pytest.mark.alone
@pytest.mark.full
def test_probes_survive_a_killed_debugger(tmp_path: Path) -> None:
    """The kernel continues the target's threads; the probes stay."""
    with (
        checker(env=NO_PREEMPTION) as target,
        recording(target.pid, tmp_path, *ALL_PROFILES) as recorder,
    ):
        with debugger(target.pid) as tracing:
            tracing.ask("attach", "attached")
            tracing.kill()
        check(target)
        assert has_probes(target.pid)
        end_without_traceback(recorder)
