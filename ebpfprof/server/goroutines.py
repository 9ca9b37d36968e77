"""The goroutines of a process in the forms of net/http/pprof, and how many there are.

The process keeps running meanwhile, and needs no recording. The goroutine that would answer the
request does not exist in it. Goroutines that run when they are read have no stack: Go stops them
first. Functions raise as server.read_endpoint.Reader.
"""

from __future__ import annotations

import time

from ebpfprof.export import traceback_text
from ebpfprof.export.goroutine_counts import GoroutineCount, counted, samples
from ebpfprof.goruntime.godebug import shows_labels
from ebpfprof.goruntime.goroutines.tracebacks import TracebackReader
from ebpfprof.goruntime.open_processes import OpenProcess
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Profile
from ebpfprof.profile.tracebacks import TracebackStyle
from ebpfprof.server import goroutine_text
from symbolizer import GoBinary


def written(process: OpenProcess, _kind: ProfileKind, debug: int) -> bytes:
    """The text of ?debug=N."""
    return traceback(process) if debug > 1 else text(process)


def traceback(process: OpenProcess) -> bytes:
    """All goroutines as in a crash, as ?debug=2 and higher of the process's Go version."""
    binary = process.binary(any_version=True)
    style = _style(binary, has_labels=shows_labels(binary, process.target))
    reader = _reader(process, binary, style, has_arguments=True)
    return traceback_text.text(reader.read(), style)


def text(process: OpenProcess) -> bytes:
    """Goroutines by stack, as ?debug=1 of the process's Go version."""
    style, counts = _counted(process)
    written = goroutine_text.text(counts, style.rules, style.most_profiled)
    return written.encode("utf-8", "backslashreplace")


def profile(process: OpenProcess, kind: ProfileKind) -> Profile:
    """The same as a profile of this kind, at the present time."""
    _, counts = _counted(process)
    mappings = process.mappings(any_version=True)
    running = sum(count.count for count in counts if not count.has_stack)
    comments = (
        [f"{running} goroutines were running: a running goroutine has no stack to read"]
        if running
        else []
    )
    return kind.make_profile(
        samples(counts, mappings),
        mappings,
        time_ns=time.time_ns(),
        duration_ns=0,
        comments=comments,
    )


def count(process: OpenProcess) -> int:
    """How many goroutines the process has, without the runtime's own (runtime.NumGoroutine)."""
    binary = process.binary(any_version=True)
    style = _style(binary, has_labels=False)
    return _reader(process, binary, style, has_arguments=False).count()


def _style(binary: GoBinary, *, has_labels: bool) -> TracebackStyle:
    layout = binary.layout
    return TracebackStyle(layout.tracebacks, has_labels, layout.profile_stacks.max_depth)


def _counted(process: OpenProcess) -> tuple[TracebackStyle, list[GoroutineCount]]:
    binary = process.binary(any_version=True)
    style = _style(binary, has_labels=True)
    reader = _reader(process, binary, style, has_arguments=False)
    return style, counted(reader.read(), style)


def _reader(
    process: OpenProcess, binary: GoBinary, style: TracebackStyle, *, has_arguments: bool
) -> TracebackReader:
    return TracebackReader(
        process.target,
        binary,
        process.load_bias(any_version=True),
        has_arguments=has_arguments,
        has_labels=style.shows_labels,
    )
