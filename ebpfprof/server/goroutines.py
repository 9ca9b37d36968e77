"""The goroutines of a process in the forms of net/http/pprof, and how many there are.

The process runs on meanwhile, and needs no recording: each call opens it, as symbols does. The
goroutine that would answer the request does not exist in it. Goroutines that run when they are read
have no stack: Go stops them first.
Functions raise NoSuchProcess, TargetGone, PermissionDenied, UnreadableMemory, CorruptBinary or
UnsupportedTarget.
"""

from __future__ import annotations

import time

from ebpfprof.export import traceback_text
from ebpfprof.export.goroutine_counts import GoroutineCount, counted, samples
from ebpfprof.goruntime.godebug import shows_labels
from ebpfprof.goruntime.goroutines.tracebacks import TracebackReader
from ebpfprof.process.process import Target
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Profile
from ebpfprof.profile.tracebacks import TracebackStyle
from ebpfprof.server import goroutine_text
from ebpfprof.server.opened import opened
from symbolizer import GoBinary


def written(pid: int, _kind: ProfileKind, debug: int) -> bytes:
    """The text of ?debug=N."""
    return traceback(pid) if debug > 1 else text(pid)


def traceback(pid: int) -> bytes:
    """All goroutines as in a crash, as ?debug=2 and higher of the process's Go version."""
    with opened(pid) as (target, binary):
        style = _style(binary, has_labels=shows_labels(binary, target))
        with _reader(target, binary, style, has_arguments=True) as reader:
            return traceback_text.text(reader.read(), style)


def text(pid: int) -> bytes:
    """Goroutines by stack, as ?debug=1 of the process's Go version."""
    with opened(pid) as (target, binary):
        style = _style(binary, has_labels=True)
        counts = _counted(target, binary, style)
        found = goroutine_text.text(counts, style.rules, style.most_profiled)
        return found.encode("utf-8", "backslashreplace")


def profile(pid: int, kind: ProfileKind) -> Profile:
    """The same as a profile of this kind, at the present time."""
    with opened(pid) as (target, binary):
        counts = _counted(target, binary, _style(binary, has_labels=True))
        mappings = target.executable_mappings(binary.elf.build_id)
        running = sum(each.count for each in counts if not each.has_stack)
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


def count(pid: int) -> int:
    """How many goroutines the process has, without the runtime's own (runtime.NumGoroutine)."""
    with opened(pid) as (target, binary):
        style = _style(binary, has_labels=False)
        with _reader(target, binary, style, has_arguments=False) as reader:
            return reader.count()


def _style(binary: GoBinary, *, has_labels: bool) -> TracebackStyle:
    layout = binary.layout
    return TracebackStyle(layout.tracebacks, has_labels, layout.profile_stacks.max_depth)


def _counted(target: Target, binary: GoBinary, style: TracebackStyle) -> list[GoroutineCount]:
    with _reader(target, binary, style, has_arguments=False) as reader:
        return counted(reader.read(), style)


def _reader(
    target: Target, binary: GoBinary, style: TracebackStyle, *, has_arguments: bool
) -> TracebackReader:
    bias, has_labels = target.load_bias(binary.elf.entry), style.shows_labels
    return TracebackReader(target, binary, bias, has_arguments=has_arguments, has_labels=has_labels)
