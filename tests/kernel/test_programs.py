"""A program is inspected once for all processes that run it, until the last one is removed."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.target import LiveTarget
from tests.kernel.kernel_state import open_files
from tests.kernel.programs import program
from tests.targets_run import Target

PROCESSES = 6


def inspections(*targets: LiveTarget) -> int:
    """How many inspections these have together."""
    known = [target.recorded.go.sites for target in targets if target.recorded.go]
    assert len(known) == len(targets)
    return len({id(sites) for sites in known})


def held_open(path: Path) -> bool:
    """Whether this process has the file open."""
    return str(path.resolve()) in open_files(os.getpid())


def test_processes_of_a_file_share_its_inspection(tmp_path: Path) -> None:
    copy = Path(shutil.copy(program("steps"), tmp_path))
    with LiveSession(Options(), capacity=PROCESSES + 1) as live, ExitStack() as stack:
        starts = [program("steps")] * PROCESSES + [copy]
        running = [stack.enter_context(Target.start(path)) for path in starts]
        targets = [live.add(each.pid) for each in running]
        assert inspections(*targets) == 2
        assert held_open(program("steps"))
        assert held_open(copy)
        # Each has its own pid, and the file stays open until the last process is removed.
        for target, each in list(zip(targets, running, strict=True))[:PROCESSES]:
            live.start(target)
            each.ask("hand", "done")
            (block,) = live.report(live.sums(target)).profiles
            names = {f.function for s in block.samples for at in s.locations for f in at.frames}
            assert any(name.startswith("main.hand") for name in names)
            live.remove(target)
        live.remove(targets[-1])
        assert not held_open(copy)
        assert not held_open(program("steps"))
        again = live.add(running[0].pid)
        assert inspections(*targets, again) == 3
        live.remove(again)


def test_threads_that_open_a_file_share_its_inspection() -> None:
    with LiveSession(Options(), capacity=PROCESSES) as live, ExitStack() as stack:
        running = [stack.enter_context(Target.start(program("steps"))) for _ in range(PROCESSES)]
        with ThreadPoolExecutor(PROCESSES) as pool:
            targets = list(pool.map(live.add, [each.pid for each in running]))
        assert inspections(*targets) == 1
        for target in targets:
            live.remove(target)
        assert not held_open(program("steps"))


def test_a_rewritten_file_is_inspected_again(tmp_path: Path) -> None:
    path = tmp_path / "program"
    with LiveSession(Options(), capacity=2) as live:
        shutil.copy(program("steps"), path)
        with Target.start(path) as first:
            one = live.add(first.pid)
            path.unlink()
            shutil.copy(program("ticker"), path)
            with Target.start(path) as second:
                other = live.add(second.pid)
                assert inspections(one, other) == 2
                live.remove(other)
            live.remove(one)
