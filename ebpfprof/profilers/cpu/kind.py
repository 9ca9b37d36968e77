"""The CPU profile."""

from __future__ import annotations

from ebpfprof.profile.kind import Endpoint, Metric, Option, ProfileKind, Table, Values
from ebpfprof.profile.model import ValueType

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
    profiler="ebpfprof.profilers.cpu.loader",
    key="x",
    endpoint=Endpoint(
        "profile",
        "CPU profile. You can specify the duration in the seconds GET parameter. After you get the "
        "profile file, use the go tool pprof command to investigate the profile.",
        seconds=30,
    ),
    metric=Metric("ebpfprof_cpu_seconds", "CPU time in samples."),
    options=(
        Option(
            "hz",
            "--hz",
            99,
            "How many CPU samples to take per second of CPU time.",
            metavar="HZ",
            least=1,
            most=999,
        ),
        Option(
            "kernel",
            "--kernel/--no-kernel",
            True,
            "Show the kernel's functions in the CPU profile; Go's own profile does not.",
        ),
    ),
    sampling=_sampling,
    needs_go=False,
    series="process_cpu",
)
