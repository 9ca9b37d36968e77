"""The wall profile."""

from __future__ import annotations

from ebpfprof.profile.kind import Endpoint, Loader, Metric, ProfileKind, Table, Values
from ebpfprof.profile.model import ValueType
from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import NumberValue

_TIME = ValueType("wall", "nanoseconds")


def _sampling(values: Values) -> str:
    return f"goroutine samples, at most {values['wall_hz']} a second"


WALL = ProfileKind(
    name="wall",
    title="wall",
    subject="Time of goroutines",
    summary="where goroutines spend their time: running, waiting for anything, or for a processor",
    heading="Time of all goroutines of {process} in {length}",
    events="hits",
    nothing="no goroutine could be read",
    headline="of the time of all goroutines:",
    sample_types=(ValueType("samples", "count"), _TIME),
    period_type=_TIME,
    table=Table("operations", "Time", "", ("Called from", "From"), at_a_time="goroutines"),
    loader=Loader("ebpfprof.profilers.wall.loader", needs_bpf=False, needs_all_samples=True),
    key="t",
    endpoint=Endpoint(
        "wall",
        "Where goroutines spend their time, whatever they do. You can specify the duration in the "
        "seconds GET parameter.",
        seconds=30,
    ),
    metric=Metric("ebpfprof_wall_seconds", "Time of goroutines, whatever they did."),
    options=(
        Setting(
            "wall_hz",
            NumberValue(1, 1000),
            100,
            "Maximum number of samples of all goroutines per second. Sampling uses at most 2 % "
            "of a processor.",
            flags="--wall-hz",
            metavar="HZ",
        ),
    ),
    sampling=_sampling,
    is_default=False,
    coverage="ebpfprof.profilers.sample_coverage:SampleCoverage",
)
