"""A made-up kind of profile, in one file: how many widgets a process has thrown, and how large.

    python tests/kernel/made_up_kind.py VERB ARGUMENT...

is `ebpfprof VERB ARGUMENT...` with that kind beside the others. Nothing else knows of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ebpfprof.__main__ import main
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Cost
from ebpfprof.profile.kind import Endpoint, Loader, Metric, ProfileKind, Table
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Frame, Location, Profile, Sample, ValueType
from ebpfprof.profilers import registry
from ebpfprof.profilers.memory_reading import MemoryProfiler
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.recording import Rights
from ebpfprof.profilers.report_builder import ReportBuilder, WholeSums
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
    loader=Loader("tests.kernel.made_up_kind", needs_go=False),
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
)
FRAMES = (Frame("main.throw", "/src/widgets.go", 12), Frame("main.main", "/src/widgets.go", 3))


class WidgetRecording:
    """Throws a widget each time it is polled while a process is recorded."""

    has_probes = False

    def __init__(self, size_ns: int) -> None:
        self._size_ns = size_ns
        self._thrown = 0
        self._is_recorded = False

    def start(self) -> int:
        self._is_recorded = True
        self._thrown += 1
        return kernel_now_ns()

    def note_end(self) -> None:
        pass

    def end(self, at_ns: int) -> None:
        self._is_recorded = False

    def stop(self) -> None:
        self._is_recorded = False

    def poll(self) -> None:
        self._thrown += self._is_recorded

    def finish(self) -> None:
        pass

    def sums(self) -> WholeSums[int] | None:
        return WholeSums(self._thrown) if self._thrown else None

    def report(
        self, sums: WholeSums[int], since: WholeSums[int] | None, builder: ReportBuilder
    ) -> None:
        builder.add_since(self._report_whole, sums, since)

    def _report_whole(self, widgets: int, builder: ReportBuilder) -> None:
        account = builder.account(KIND, "widget profile")
        stack = tuple(Location(0x1000 + at, None, (frame,)) for at, frame in enumerate(FRAMES))
        values = (widgets, widgets * self._size_ns)
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

    def cost(self) -> Cost:
        return Cost()

    def losses(self) -> Sequence[Loss]:
        return ()

    def failures(self) -> Sequence[Exception]:
        return ()

    def close(self) -> None:
        pass


def open_profiler(targets: int, options: Options) -> MemoryProfiler[WidgetRecording]:
    size_ns = 1_000_000 * options["widget_size"]
    return MemoryProfiler(lambda opened, slot: WidgetRecording(size_ns))


def rights(options: Options) -> Rights:
    return Rights()


if __name__ == "__main__":
    registry.register(KIND)
    main()
