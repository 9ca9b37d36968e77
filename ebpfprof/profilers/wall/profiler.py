"""The profiler of all time of goroutines: the sums of looks at random times.

It loads no BPF program and attaches no probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Runs
from ebpfprof.profilers.profiler import HasSnapshots, RecordedData, Rights

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.samples.shared_sampler import GoroutineLooks
    from ebpfprof.profilers.goroutines.stacks import GoroutineStacks
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.profiler import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder

_TICK_S: Final = 0.1
_BEYOND: Final = "goroutines that were not read: there are too many"
_UNLABELLED: Final = "goroutines without labels: they could not be read"


def open_profiler(_targets: int, _options: Options) -> WallProfiler:
    """A profiler for any number of processes."""
    return WallProfiler()


def rights(_options: Options) -> Rights:
    """Reading memory needs no CAP_SYS_ADMIN."""
    return Rights()


class WallProfiler(HasSnapshots):
    """Reads the sums of GoroutineLooks."""

    tick_s = _TICK_S
    hit_ns = None

    def __init__(self) -> None:
        self._opened: dict[int, tuple[GoTarget, GoroutineLooks]] = {}
        self._started: set[int] = set()
        self._stacks: dict[int, GoroutineStacks] = {}

    def load(self, goroutines: int) -> None:
        """Nothing to load."""

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Give an open Go process this number."""
        if opened.go and opened.looks:
            self._opened[number] = opened.go, opened.looks

    def start(self, number: int) -> int:
        """Begin to look. Returns when that was (CLOCK_MONOTONIC, ns).

        Raises what GoroutineLooks.start raises.
        """
        if number not in self._opened:
            return kernel_now_ns()
        began_ns = self._opened[number][1].start()
        self._started.add(number)
        return began_ns

    def stop(self, number: int) -> None:
        """End the looks; the sums stay."""
        if number in self._started:
            self._started.discard(number)
            self._opened[number][1].stop()

    def note_end(self, number: int) -> None:
        """Nothing to read."""

    def end(self, number: int, at_ns: int) -> None:
        """Nothing to do: GoroutineLooks.end_at() is called for all profilers."""

    def detach(self) -> None:
        """End the looks at all processes."""
        for number in tuple(self._started):
            self.stop(number)

    def forget(self, number: int) -> None:
        """Delete all data of a process."""
        self._opened.pop(number, None)
        self._stacks.pop(number, None)

    def poll(self) -> None:
        """Nothing to do: looks have a thread of their own."""

    def has_probes(self, _number: int) -> bool:
        """It reads memory."""
        return False

    def runs(self, _number: int) -> tuple[Runs, Runs]:
        """No BPF program runs."""
        return Runs(), Runs()

    def losses(self) -> Sequence[Loss]:
        """Goroutines that were not read, and labels."""
        found = []
        for number, (_, looks) in self._opened.items():
            if looks.has_begun:
                counts = (
                    ("goroutines_beyond", _BEYOND, looks.sampler.beyond),
                    ("labels_unread", _UNLABELLED, looks.sampler.states.unlabelled),
                )
                found += [Loss(name, text, n, target=number) for name, text, n in counts if n]
        return found

    def failures(self) -> Sequence[Exception]:
        """Why looks ended early."""
        found = (looks.failure for _, looks in self._opened.values())
        return [failure for failure in found if failure]

    def snapshot(self, number: int, *, settled: bool) -> RecordedData | None:
        """The sums of a process since its first start."""
        if number not in self._opened:
            return None
        from ebpfprof.profilers.wall.report import RecordedWall

        looks = self._opened[number][1]
        if not looks.has_begun:
            return None
        sampler, idle = looks.sampler, looks.idle()  # first, since it may take long
        return RecordedWall(
            totals=looks.counted(),
            idle=idle,
            torn=sampler.states.torn,
            unknown=sampler.states.unknown,
            late_ns=looks.late_ns,
        )

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the wall profile."""
        from ebpfprof.profilers.goroutines.stacks import GoroutineStacks
        from ebpfprof.profilers.wall.report import RecordedWall, report

        assert isinstance(found, RecordedWall)
        if number not in self._stacks:
            self._stacks[number] = GoroutineStacks(self._opened[number][0])
        report(found, self._stacks[number], builder)

    def close(self) -> None:
        """End the looks; the processes' own stacks of contexts close their memory."""
        self.detach()
