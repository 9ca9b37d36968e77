"""A made-up kind of profile, in one file: how many widgets a process has thrown, and how large.

    python tests/kernel/made_up_kind.py VERB ARGUMENT...

is `ebpfprof VERB ARGUMENT...` with that kind beside the others. Nothing else knows of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ebpfprof.__main__ import main
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Runs
from ebpfprof.profile.kind import Endpoint, Metric, ProfileKind, Table
from ebpfprof.profile.model import Frame, Location, Profile, Sample, ValueType
from ebpfprof.profilers import registry
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.profiler import HasSnapshots, OpenedProcess, RecordedData, Rights
from ebpfprof.profilers.report_builder import ReportBuilder
from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import NumberValue

KIND = ProfileKind(
    name="widgets",
    title="widget",
    subject="Widgets",
    summary="who threw widgets, and how large they were",
    heading="Widgets of {process} in {length}",
    events="widgets",
    nothing="no widget was thrown",
    headline="of all widgets:",
    sample_types=(ValueType("widgets", "count"), ValueType("throwing", "nanoseconds")),
    table=Table("functions", "Throwing", "Widgets", ("Thrown by",)),
    profiler="tests.kernel.made_up_kind",
    key="g",
    endpoint=Endpoint("widgets", "Widgets that were thrown", delta="delta_widgets"),
    metric=Metric("ebpfprof_throwing_seconds", "Time that widgets were thrown."),
    options=(
        Setting(
            "widget_size",
            NumberValue(0, 99),
            7,
            "How large widgets are.",
            flags="--widget-size",
            metavar="SIZE",
        ),
    ),
    sampling=lambda values: f"widgets of size {values['widget_size']}",
    needs_go=False,
)
FRAMES = (Frame("main.throw", "/src/widgets.go", 12), Frame("main.main", "/src/widgets.go", 3))


@dataclass(slots=True, kw_only=True)
class RecordedWidgets(RecordedData):
    widgets: int = 0


class WidgetProfiler(HasSnapshots):
    """Throws a widget each time it is polled while a process is recorded."""

    tick_s = 0.05
    hit_ns = None

    def __init__(self, options: Options) -> None:
        self._size_ns = 1_000_000 * options["widget_size"]
        self._thrown: dict[int, int] = {}
        self._recorded: set[int] = set()

    def load(self, goroutines: int) -> None:
        pass

    def open(self, number: int, opened: OpenedProcess) -> None:
        self._thrown[number] = 0

    def start(self, number: int) -> int:
        self._recorded.add(number)
        self._thrown[number] += 1
        return kernel_now_ns()

    def stop(self, number: int) -> None:
        self._recorded.discard(number)

    def note_end(self, number: int) -> None:
        pass

    def end(self, number: int, at_ns: int) -> None:
        self._recorded.discard(number)

    def detach(self) -> None:
        pass

    def forget(self, number: int) -> None:
        self._thrown.pop(number, None)

    def poll(self) -> None:
        for number in self._recorded:
            self._thrown[number] += 1

    def has_probes(self, _number: int) -> bool:
        return False

    def runs(self, number: int) -> tuple[Runs, Runs]:
        return Runs(), Runs()

    def losses(self) -> Sequence[Loss]:
        return ()

    def failures(self) -> Sequence[Exception]:
        return ()

    def snapshot(self, number: int, *, settled: bool) -> RecordedData:
        return RecordedWidgets(widgets=self._thrown[number])

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        assert isinstance(found, RecordedWidgets)
        account = builder.account(KIND, "widget profile")
        stack = tuple(Location(0x1000 + at, None, (frame,)) for at, frame in enumerate(FRAMES))
        values = (found.widgets, found.widgets * self._size_ns)
        profile = Profile(
            kind=KIND.name,
            sample_types=KIND.sample_types,
            period_type=KIND.sample_types[0],
            period=1,
            samples=(Sample(stack, values),),
            mappings=(),
            time_ns=builder.recording.started_unix_ns,
            duration_ns=account.length_ns,
            comments=(),
        )
        builder.add(profile, account)

    def close(self) -> None:
        pass


def open_profiler(targets: int, options: Options) -> WidgetProfiler:
    return WidgetProfiler(options)


def rights(options: Options) -> Rights:
    return Rights()


if __name__ == "__main__":
    registry.register(KIND)
    main()
