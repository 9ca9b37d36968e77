"""The profiler of waits: one BPF program with probes in any number of processes.

With a bound for the overhead, it records each process in windows (profilers.waits.windows).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Runs
from ebpfprof.profilers.profiler import HasSnapshots, OpenedProcess, Rights
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX, OPEN, WAKERS
from ebpfprof.profilers.waits.rows import WaitsConfig
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:  # importing them takes time: we do it while BCC compiles
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.profiler import RecordedData
    from ebpfprof.profilers.report_builder import ReportBuilder
    from ebpfprof.profilers.waits.idle_stacks import IdleStacks
    from ebpfprof.profilers.waits.looked_delays import LookedDelays
    from ebpfprof.profilers.waits.open_recorder import OpenWaitsRecorder
    from ebpfprof.profilers.waits.open_waits import StandingGoroutines
    from ebpfprof.profilers.waits.report import RecordedWaits
    from ebpfprof.profilers.waits.rows import Hold, LastWait, StackTotal
    from ebpfprof.profilers.waits.stacks import StackTranslator
    from ebpfprof.profilers.waits.windows import Windows

_TICK_S: Final = 0.1
_TURN_EACH_NS: Final = 50_000_000
"""With so many processes in windows, twenty windows a second: each takes us some milliseconds."""


def open_profiler(targets: int, options: Options) -> WaitsProfiler:
    """Start to compile, for up to `targets` processes. Raises what WaitsCollector raises."""
    return WaitsProfiler(targets, options)


def rights(_options: Options) -> Rights:
    """Kernels without uprobe links require CAP_SYS_ADMIN for attaching probes."""
    from ebpfprof.kernel import uprobe_links

    return Rights(to_attach=not uprobe_links.is_offered())


class WaitsProfiler(HasSnapshots):
    """Records the block, mutex and wakers profiles, and open waits at the end."""

    tick_s = _TICK_S

    def __init__(self, targets: int, options: Options) -> None:
        """Start to compile; load() waits for the result."""
        self.collector = WaitsCollector(targets, WaitsConfig.of(options))
        self._options = options
        self._opened: dict[int, tuple[OpenedProcess, GoTarget]] = {}
        self._windows: dict[int, Windows] = {}
        self._translators: dict[int, StackTranslator] = {}
        self._last: tuple[dict[int, list[StackTotal]], dict[int, dict[int, Hold]]] | None = None
        self._last_waits: dict[int, dict[int, LastWait]] = {}
        self._delays: dict[int, LookedDelays] = {}
        self._idle: dict[int, IdleStacks] = {}
        self._standing: dict[int, StandingGoroutines | None] = {}
        self._open: OpenWaitsRecorder | None = None
        if options["open_waits"]:
            from ebpfprof.profilers.waits.open_recorder import OpenWaitsRecorder

            self._open = OpenWaitsRecorder(has_labels=options.labels != ())

    @property
    def hit_ns(self) -> float | None:
        """What a probe hit costs a thread, in ns, without our program; None if unknown."""
        return self.collector.hit_ns

    def load(self, goroutines: int) -> None:
        """Make the maps and load the program. Raises what WaitsCollector.load raises."""
        self.collector.load(goroutines)

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Give an open process this number; it records nothing of a non-Go program."""
        from ebpfprof.profilers.waits.stacks import StackTranslator

        if opened.go:
            self._opened[number] = opened, opened.go
            self._translators[number] = StackTranslator(opened.go)
            if opened.looks and {BLOCK, WAKERS} & set(self._options.recorded_kinds):
                from ebpfprof.profilers.waits.idle_stacks import IdleStacks

                self._idle[number] = IdleStacks(opened.looks)

    def start(self, number: int) -> int:
        """Attach the probes. Returns when that was (CLOCK_MONOTONIC, ns). Raises as Profiler."""
        if number not in self._opened:
            return kernel_now_ns()
        opened, go = self._opened[number]
        if not self._options.is_bounded:
            if self._options["earlier_waits"]:
                from ebpfprof.profilers.waits.earlier_waits import attach_with_earlier_waits

                began_ns = attach_with_earlier_waits(self.collector, number, go)
            else:
                began_ns = self.collector.attach(number, go)
            if number in self._idle:
                self._idle[number].start()
            return began_ns
        from ebpfprof.profilers.waits.looked_delays import LookedDelays
        from ebpfprof.profilers.waits.windows import Windows

        assert opened.looks
        windows = self._windows.get(number)
        if windows is None:
            delays = self._delays[number] = LookedDelays(
                opened.looks,
                has_wakers=self.collector.has_wakers,
                has_releases="mutex" in self._options.kinds,
            )
            share = self._options.max_overhead / 100
            windows = Windows(
                *(self.collector, number, go, share),
                others_ns=lambda: opened.others_ns(self),
                begin_estimates=delays.begin,
                least_turn_ns=self._least_turn_ns,
            )
            self._windows[number] = windows
        self._delays[number].start()
        try:
            return windows.start()
        except BaseException:  # Ctrl-C too: who started us will not call stop()
            self._delays[number].stop()
            raise

    def end(self, number: int, at_ns: int) -> None:
        """Record no events after `at_ns`."""
        if number in self._windows:
            self._windows[number].end(at_ns)
        else:
            self.collector.end_window(number, at_ns)

    def stop(self, number: int) -> None:
        """Detach the probes; the sums stay."""
        if number in self._windows:
            self._windows[number].stop()
            self._delays[number].stop()
        if number in self._idle:
            self._idle[number].stop()
        if number in self._opened:
            self.collector.detach_target(number)

    def note_end(self, number: int) -> None:
        """With --open, read which goroutines wait now."""
        if self._open and number in self._opened:
            opened, go = self._opened[number]
            self._open.note_end(number, go, opened.looks if number in self._windows else None)

    def detach(self) -> None:
        """Detach all probes, and read the final sums of all processes."""
        for delays in self._delays.values():  # at once: this looks at the goroutines
            delays.stop()
        # Windows first: stop() would overwrite the times of a window that is being prepared.
        for windows in self._windows.values():
            windows.stop()
        self.collector.stop()
        self.collector.detach()
        for idle in self._idle.values():
            idle.stop()
        self._last = self.collector.tables.snapshot(), self.collector.tables.holds()
        if self._open:
            self._last_waits = self.collector.tables.last_waits()
            paused = (number for number, windows in self._windows.items() if windows.has_paused)
            self._standing = {number: self._open.standing.get(number) for number in paused}

    def forget(self, number: int) -> None:
        """Delete all data of a process that is not recorded."""
        self.collector.forget(number)
        if self._open:
            self._open.forget(number)
        for kept in (self._opened, self._windows, self._delays, self._translators, self._idle):
            kept.pop(number, None)

    def poll(self) -> None:
        """Read missing label pages, and begin looks that are due."""
        self.collector.poll()
        for idle in tuple(self._idle.values()):
            idle.poll()

    def has_probes(self, _number: int) -> bool:
        """Always: at park, wake and so on."""
        return True

    def runs(self, number: int) -> tuple[Runs, Runs]:
        """The runs at probes; no runs at CPU samples."""
        return self.collector.runs(number), Runs()

    def losses(self) -> Sequence[Loss]:
        """What it lost so far of each process."""
        parked = self._open.parked if self._open else {}
        at_end = (
            replace(loss, target=number) for number, each in parked.items() for loss in each.losses
        )
        return [*self.collector.losses(), *at_end]

    def failures(self) -> Sequence[Exception]:
        """The errors because of which data is missing."""
        windows = (each.failure for each in self._windows.values())
        unread = self._open.unread.values() if self._open else ()
        found = (self.collector.failure, *unread, *windows)
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
        elif self._delays[number].has_begun:  # then there is something new at each moment
            from ebpfprof.profilers.waits.looked_delays import tellers

            _, go = self._opened[number]
            found.holds = windows.holds()
            found.totals, found.coverage = self._delays[number].applied(
                *(windows.totals(), windows.coverage(), windows.exact(), windows.uncharged()),
                *tellers(go, self._translators[number]),
            )
        elif settled:
            found.totals, found.coverage = windows.settled()
            found.stands_for_ns = found.coverage.stood_for_ns
            found.holds = windows.holds()
        else:
            found.totals, found.coverage = windows.totals(), windows.coverage()
            found.holds = windows.holds()
        if windows:
            found.totals = self._delays[number].grown(found.totals)
        return found

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the block and mutex profiles, the locks and the open waits."""
        from ebpfprof.profilers.waits.report import RecordedWaits, report

        assert isinstance(found, RecordedWaits)
        _, go = self._opened[number]
        wanted = builder.recording.kinds
        found.kinds = tuple(k for k in found.kinds if k.name in wanted or k.enabled_by)
        report(found, go, self._translators[number], builder)
        if found.hanging:
            from ebpfprof.profilers.waits import hanging

            looks, translator = self._delays[number].looks, self._translators[number]
            with suppress(SymbolizerError):
                builder.report.hints += hanging.sentences(
                    found.hanging, looks, translator, go.target.pid
                )

    def close(self) -> None:
        """Detach the probes and free the maps."""
        for windows in self._windows.values():
            windows.end(kernel_now_ns())
        for windows in self._windows.values():
            windows.stop()
        self.collector.close()

    def _least_turn_ns(self) -> float:
        taking_turns = (each.has_paused and not each.is_open for each in [*self._windows.values()])
        return _TURN_EACH_NS * sum(taking_turns)

    def _found(self, number: int) -> RecordedWaits:
        from ebpfprof.profilers.waits.report import RecordedWaits

        # Open waits exist only at the end.
        chosen = [kind for kind in self._options.recorded_kinds if kind in (BLOCK, MUTEX, WAKERS)]
        open_kinds = [OPEN] if self._options["open_waits"] and self._last else []
        return RecordedWaits(
            kinds=(*chosen, *open_kinds),
            last_waits=self._last_waits.get(number, {}),
            standing=self._standing.get(number),
            hanging=self._delays[number].hanging() if number in self._delays else {},
            parked=self._open.parked.get(number) if self._open else None,
            unread=self._open.unread.get(number) if self._open else None,
            idle=self._idle[number].found() if number in self._idle else {},
        )
