"""The end of a recording: no wait is longer than the recorded time."""

from __future__ import annotations

from pathlib import Path

from ebpfprof.goruntime.goroutines.parked import ParkedScanner
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.process.process import Target as Opened
from ebpfprof.profilers.waits.collector import FOREVER_NS, WaitsCollector
from ebpfprof.profilers.waits.rows import WaitsConfig
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.kernel.tampered import command
from tests.recorder import only_profile, run
from tests.targets_run import Target

WINDOWS = WaitsConfig(block=True, mutex=False, windows=True)


def test_a_window_in_preparation_ends_before_the_recording(tmp_path: Path) -> None:
    """Otherwise waiting goroutines would seem to wait since boot."""
    arguments = ("--duration", "600", "--max-overhead", "1", "--profile", "block")
    with Target.start(program("demo")) as target:
        finished = run(
            *("--pid", str(target.pid), *arguments),
            folder=tmp_path,
            command=command("ends while a window is prepared"),
        )
    assert finished.code == 0, finished.stderr
    assert only_profile(tmp_path).samples


def test_no_wait_is_longer_than_its_window() -> None:
    """However the window ends while seeds are put into the kernel's tables."""
    with (
        Target.start(program("parked")) as running,
        Opened(running.pid) as target,
        WaitsCollector(1, WINDOWS) as waits,
    ):
        go = inspect(target)
        waits.load()
        waits.attach_probes(0, go)
        begin_ns = kernel_now_ns()
        scanner = ParkedScanner(go, has_labels=False)
        turns = list(scanner.parked().values())
        waits.stop()
        for parked in turns:
            waits.seed(0, parked)
        assert turns
        assert waits.tables.waiting(0) == []
        waits.open_window(0, begin_ns, FOREVER_NS)
        running.ask("", "turned")
        longest_ns = max((delay_ns for _, delay_ns in waits.tables.take(0).values()), default=0)
        assert longest_ns < kernel_now_ns() - begin_ns
