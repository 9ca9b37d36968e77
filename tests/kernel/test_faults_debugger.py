"""A debugger traces the target before, while and after it is recorded; both do what they should."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from symbolizer import ElfFile, GoBinary
from tests.kernel.kernel_state import has_probes, probed
from tests.kernel.programs import program
from tests.kernel.unharmed import ALL_PROFILES, check, checker, what_happened
from tests.recorder import Recorder, recording
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]
# Else signals keep coming to threads that are stepped, ever more than they can handle.
NO_PREEMPTION = {"GODEBUG": "asyncpreemptoff=1"}


@contextmanager
def debugger(pid: int) -> Iterator[Target]:
    arguments = ("-m", "tests.kernel.debugger", str(pid))
    with Target.start(Path(sys.executable), *arguments, env={"PYTHONPATH": str(ROOT)}) as running:
        yield running


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


def end(recorder: Recorder) -> None:
    recorder.interrupt()
    finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_debugger_that_was_there_before(tmp_path: Path) -> None:
    """The probes come and go while it has stopped the target."""
    with checker(env=NO_PREEMPTION) as target, debugger(target.pid) as tracing:
        tracing.ask("attach", "attached")
        with recording(target.pid, tmp_path, *ALL_PROFILES) as recorder:
            assert has_probes(target.pid)
            over_probes(tracing, target.pid)
            tracing.ask("continue", "continued")
            check(target)
            tracing.ask("stop", "stopped")
            end(recorder)
        assert not has_probes(target.pid)
        tracing.ask("detach", "detached")
    assert all(profile.samples for profile in what_happened(tmp_path))


def test_a_debugger_that_comes_and_goes_while_it_is_recorded(tmp_path: Path) -> None:
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
        end(recorder)
    assert all(profile.samples for profile in what_happened(tmp_path))


def test_a_debugger_that_is_killed_in_the_midst(tmp_path: Path) -> None:
    """The kernel lets its threads go on; the probes stay."""
    with (
        checker(env=NO_PREEMPTION) as target,
        recording(target.pid, tmp_path, *ALL_PROFILES) as recorder,
    ):
        with debugger(target.pid) as tracing:
            tracing.ask("attach", "attached")
            tracing.kill()
        check(target)
        assert has_probes(target.pid)
        end(recorder)
