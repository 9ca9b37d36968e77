"""The profiler of waits: one BPF program with probes in any number of processes.

Within a bound of overhead each process is watched in windows (ebpfprof.profilers.waits.windows).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import TargetGone
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Runs
from ebpfprof.profilers.profiler import OpenedProcess, Rights
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX, OPEN
from ebpfprof.profilers.waits.rows import WaitsConfig

if TYPE_CHECKING:  # they take time to import, which passes while BCC compiles
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.profiler import RecordedData
    from ebpfprof.profilers.report_builder import ReportBuilder
    from ebpfprof.profilers.waits.open_waits import ParkedAtEnd
    from ebpfprof.profilers.waits.report import RecordedWaits
    from ebpfprof.profilers.waits.rows import Hold, LastWait, StackTotal
    from ebpfprof.profilers.waits.stacks import StackTranslator
    from ebpfprof.profilers.waits.windows import Windows

_TICK_S: Final = 0.1


def open_profiler(targets: int, options: Options) -> WaitsProfiler:
    """Begin to compile, for up to so many processes. Raises what WaitsCollector does."""
    return WaitsProfiler(targets, options)


def rights(_options: Options) -> Rights:
    """CAP_SYS_ADMIN puts probes in where the kernel has no links of their own for them."""
    from ebpfprof.kernel import uprobe_links

    return Rights(to_attach=not uprobe_links.is_offered())


class WaitsProfiler:
    """Records the block and mutex profiles, and the waits that are open at the end."""

    tick_s = _TICK_S

    def __init__(self, targets: int, options: Options) -> None:
        """Begin to compile; load() ends that."""
        self.collector = WaitsCollector(targets, WaitsConfig.of(options))
        self._options = options
        self._opened: dict[int, tuple[OpenedProcess, GoTarget]] = {}
        self._windows: dict[int, Windows] = {}
        self._translators: dict[int, StackTranslator] = {}
        self._parked: dict[int, ParkedAtEnd] = {}
        self._unread: dict[int, Exception] = {}
        self._last: tuple[dict[int, list[StackTotal]], dict[int, dict[int, Hold]]] | None = None
        self._last_waits: dict[int, dict[int, LastWait]] = {}
        if options["open_waits"]:
            import ebpfprof.profilers.waits.open_waits  # noqa: F401 - no time for it at the end

    @property
    def hit_ns(self) -> float | None:
        """What it costs a thread to pass a probe, in ns, without our program; None if not known."""
        return self.collector.hit_ns

    def load(self, goroutines: int) -> None:
        """Make the maps and load the program. Raises what WaitsCollector.load does."""
        self.collector.load(goroutines)

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Make a process number `number`; nothing is recorded of one that is no Go program."""
        if opened.go:
            self._opened[number] = opened, opened.go

    def start(self, number: int) -> int:
        """Put the probes in: when that was (CLOCK_MONOTONIC, ns). Raises as Profiler.start."""
        if number not in self._opened:
            return kernel_now_ns()
        opened, go = self._opened[number]
        if not self._options.is_bounded:
            return self.collector.attach(number, go)
        from ebpfprof.profilers.waits.windows import Windows

        windows = self._windows.get(number)
        if windows is None:
            share = self._options.max_overhead / 100
            windows = Windows(self.collector, number, go, share, lambda: opened.others_ns(self))
            self._windows[number] = windows
        return windows.start()

    def stop(self, number: int) -> None:
        """Take the probes out; the sums stay."""
        if number in self._windows:
            self._windows[number].stop()
        if number in self._opened:
            self.collector.detach_target(number)

    def note_end(self, number: int) -> None:
        """Read which goroutines wait now, if that is asked for."""
        if not self._options["open_waits"] or number not in self._opened:
            return
        from ebpfprof.goruntime.process import for_user
        from ebpfprof.profilers.waits.open_waits import read_parked

        _, go = self._opened[number]
        try:
            self._parked[number] = read_parked(
                go, kernel_now_ns(), has_labels=self._options.labels != ()
            )
        except TargetGone:
            pass  # nothing waits any more
        except Exception as error:  # what was recorded is worth more
            self._unread[number] = for_user(go.target, error)

    def end(self) -> None:
        """End the recording of all processes at once."""
        # Windows first: one that is just prepared must not lose its begin to the end of all.
        for windows in self._windows.values():
            windows.end()
        for windows in self._windows.values():
            windows.stop()
        self.collector.stop()

    def detach(self) -> None:
        """Remove all probes. Nothing is added any more: the sums are read once for all."""
        self.collector.detach()
        self._last = self.collector.tables.snapshot(), self.collector.tables.holds()
        if self._options["open_waits"]:
            self._last_waits = self.collector.tables.last_waits()
            for number, parked in self._parked.items():
                if number in self._windows:
                    self._last_waits[number] = self._windows[number].last_waits(parked.goroutines)

    def forget(self, number: int) -> None:
        """Forget all of a process that is not recorded."""
        self.collector.forget(number)
        for kept in (self._opened, self._windows, self._translators, self._parked, self._unread):
            kept.pop(number, None)

    def poll(self) -> None:
        """See to it that labels can be read."""
        self.collector.poll()

    def runs(self, number: int) -> tuple[Runs, Runs]:
        """How often a probe was hit, and what our programs took."""
        return self.collector.runs(number), Runs()

    def losses(self) -> Sequence[Loss]:
        """What was lost so far, all processes together."""
        parked = [loss for each in self._parked.values() for loss in each.losses]
        return [*self.collector.losses(), *parked]

    def failures(self) -> Sequence[Exception]:
        """Why something is missing of what was recorded."""
        windows = (each.failure for each in self._windows.values())
        found = (self.collector.failure, *self._unread.values(), *windows)
        return [failure for failure in found if failure]

    def snapshot(self, number: int, *, settled: bool) -> RecordedData | None:
        """The sums of a process since its first start."""
        if number not in self._opened:
            return None
        found = self._found(number)
        windows = self._windows.get(number)
        if windows is None:
            totals, holds = self._last or (
                self.collector.tables.snapshot(),
                self.collector.tables.holds(),
            )
            found.totals, found.holds = totals.get(number, []), holds.get(number, {})
        elif settled:
            found.totals, found.coverage = windows.settled()
            found.stands_for_ns = found.coverage.stood_for_ns
            found.holds = windows.holds()
        else:
            found.totals, found.coverage = windows.totals(), windows.coverage()
            found.holds = windows.holds()
        return found

    def begin(self, _number: int) -> None:
        """Nothing: snapshots have the sums."""

    def read(self, number: int, _mark: None, *, restart: bool) -> RecordedData:
        """Not to be called: begin() has no mark."""
        raise NotImplementedError

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the block and mutex profiles, the locks and the open waits."""
        from ebpfprof.profilers.waits.report import RecordedWaits, report
        from ebpfprof.profilers.waits.stacks import StackTranslator

        assert isinstance(found, RecordedWaits)
        _, go = self._opened[number]
        if number not in self._translators:
            self._translators[number] = StackTranslator(go)
        wanted = builder.recording.kinds
        found.kinds = tuple(k for k in found.kinds if k.name in wanted or k.enabled_by)
        report(found, go, self._translators[number], builder)

    def close(self) -> None:
        """Remove the probes and free the maps."""
        for windows in self._windows.values():
            windows.end()
        for windows in self._windows.values():
            windows.stop()
        self.collector.close()

    def _found(self, number: int) -> RecordedWaits:
        from ebpfprof.profilers.waits.report import RecordedWaits

        # Open waits are those at the end.
        chosen = [kind for kind in self._options.recorded_kinds if kind in (BLOCK, MUTEX)]
        open_kinds = [OPEN] if self._options["open_waits"] and self._last else []
        return RecordedWaits(
            kinds=(*chosen, *open_kinds),
            last_waits=self._last_waits.get(number, {}),
            parked=self._parked.get(number),
            unread=self._unread.get(number),
        )
