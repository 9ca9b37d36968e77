"""The threads profile, and the threadcreate profile, which has what Go itself knows of threads."""

from __future__ import annotations

from typing import Final

from ebpfprof.profile.kind import Endpoint, ProfileKind, Table
from ebpfprof.profile.model import ValueType

_PROFILER: Final = "ebpfprof.profilers.threads.loader"
_READER: Final = "ebpfprof.server.threads"

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
    profiler=_PROFILER,
    key="s",
    endpoint=Endpoint(
        "threads",
        "What each thread of the operating system does, with the stack of the goroutine that has "
        "it. Go has no such profile.",
        reader=_READER,
    ),
    sampling=lambda _: "every thread",
    is_moment=True,
    needs_bpf=False,
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
    profiler=_PROFILER,
    endpoint=Endpoint(
        "threadcreate",
        "Stack traces that led to the creation of new OS threads",
        reader=_READER,
    ),
    sampling=lambda _: "every thread of Go's list",
    is_moment=True,
    needs_bpf=False,
    is_default=False,
)
