"""The CPU profile."""

from __future__ import annotations

from ebpfprof.profile.kind import Endpoint, Loader, Metric, ProfileKind, Table, Values
from ebpfprof.profile.model import ValueType
from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import NumberValue, SwitchValue

_CPU_TIME = ValueType("cpu", "nanoseconds")


def _sampling(values: Values) -> str:
    return f"{values['hz']} samples per second of CPU time"


CPU = ProfileKind(
    name="cpu",
    title="CPU",
    subject="CPU time",
    summary="what used the processor",
    heading="CPU time of {process} in {length}",
    events="samples",
    nothing="the program used no CPU time",
    headline="of CPU time:",
    # As in Go's own CPU profile (runtime/pprof/proto.go, newProfileBuilder).
    sample_types=(ValueType("samples", "count"), _CPU_TIME),
    period_type=_CPU_TIME,
    table=Table("functions", "CPU", "Samples", ("Function",), rate="processors", at_a_time="CPUs"),
    loader=Loader("ebpfprof.profilers.cpu.loader", needs_go=False),
    key="x",
    endpoint=Endpoint(
        "profile",
        "CPU profile. You can specify the duration in the seconds GET parameter. After you get the "
        "profile file, use the go tool pprof command to investigate the profile.",
        seconds=30,
    ),
    metric=Metric("ebpfprof_cpu_seconds", "CPU time in samples."),
    options=(
        Setting(
            "hz",
            NumberValue(1, 999),
            99,
            "CPU samples per second of CPU time.",
            flags="--hz",
            metavar="HZ",
        ),
        Setting(
            "kernel",
            SwitchValue(),
            True,
            "Show kernel functions in the CPU profile. Go's own profile does not.",
            flags="--kernel/--no-kernel",
        ),
    ),
    sampling=_sampling,
    series="process_cpu",
    is_agent_default=True,
)
