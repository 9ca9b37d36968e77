"""The kinds that are read from memory: goroutines, their threads, and the time of goroutines.

The threadcreate profile has what Go itself knows of threads.
"""

from __future__ import annotations

from typing import Final

from ebpfprof.profile.kind import Endpoint, Loader, Metric, ProfileKind, Table, Values
from ebpfprof.profile.model import ValueType
from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import NumberValue

_THREADS: Final = Loader("ebpfprof.profilers.goroutines.thread_loader", needs_bpf=False)
_READER: Final = "ebpfprof.server.threads"
_WALL_TIME = ValueType("wall", "nanoseconds")


def _wall_sampling(values: Values) -> str:
    return f"goroutine samples, at most {values['wall_hz']} a second"


GOROUTINE = ProfileKind(
    name="goroutine",
    title="goroutine",
    subject="Goroutines",
    summary="where all goroutines are, also those that run or wait for the network",
    heading="Goroutines of {process} after {length}",
    events="goroutines",
    nothing="no goroutine could be read",
    headline="of all goroutines:",
    sample_types=(ValueType("goroutine", "count"),),
    table=Table("operations", "Goroutines", "Goroutines", ("Called from", "From")),
    loader=Loader("ebpfprof.profilers.goroutines.loader", needs_bpf=False),
    key="o",
    endpoint=Endpoint(
        "goroutine",
        "Stack traces of all current goroutines. Use debug=2 as a query parameter to export in the "
        "same format as an unrecovered panic.",
        reader="ebpfprof.server.goroutines",
    ),
    sampling=lambda _: "every goroutine",
    is_moment=True,
    is_default=False,
    is_agent_default=True,
)
THREADS = ProfileKind(
    name="threads",
    title="threads",
    subject="Threads",
    summary="what each thread of the operating system does, and which goroutine has it",
    heading="Threads of {process} after {length}",
    events="threads",
    nothing="no thread could be read",
    headline="of all threads:",
    sample_types=(ValueType("new_threads", "count"), ValueType("threads", "count")),
    shown=(1, 1),
    table=Table("operations", "Threads", "", ("Called from", "From")),
    loader=_THREADS,
    key="s",
    endpoint=Endpoint(
        "threads",
        "What each thread of the operating system does, with the stack of the goroutine that has "
        "it. Go has no such profile.",
        reader=_READER,
    ),
    sampling=lambda _: "every thread",
    is_moment=True,
    is_default=False,
)
THREADCREATE = ProfileKind(
    name="threadcreate",
    title="threadcreate",
    subject="Creations of threads",
    summary="how many threads Go made: its own profile, which has hardly any stacks",
    heading="Threads that Go made in {process} after {length}",
    events="threads",
    nothing="no thread could be read",
    headline="of all threads:",
    sample_types=(ValueType("threadcreate", "count"),),
    table=Table("operations", "Threads", "Threads", ("Called from", "From")),
    loader=_THREADS,
    endpoint=Endpoint(
        "threadcreate",
        "Stack traces that led to the creation of new OS threads",
        reader=_READER,
    ),
    sampling=lambda _: "every thread of Go's list",
    is_moment=True,
    is_default=False,
)
WALL = ProfileKind(
    name="wall",
    title="wall",
    subject="Time of goroutines",
    summary="where goroutines spend their time: running, waiting for anything, or for a processor",
    heading="Time of all goroutines of {process} in {length}",
    events="hits",
    nothing="no goroutine could be read",
    headline="of the time of all goroutines:",
    sample_types=(ValueType("samples", "count"), _WALL_TIME),
    period_type=_WALL_TIME,
    table=Table("operations", "Time", "", ("Called from", "From"), at_a_time="goroutines"),
    loader=Loader(
        "ebpfprof.profilers.goroutines.wall_loader", needs_bpf=False, needs_all_samples=True
    ),
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
    sampling=_wall_sampling,
    is_default=False,
    coverage="ebpfprof.profilers.sample_coverage:SampleCoverage",
)
