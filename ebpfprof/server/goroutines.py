"""The goroutines of a process, as the texts of net/http/pprof, and how many there are."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from ebpfprof.export import traceback_text
from ebpfprof.goruntime.godebug import shows_labels
from ebpfprof.goruntime.process import for_user
from ebpfprof.goruntime.tracebacks import TracebackReader
from ebpfprof.process.process import Target
from ebpfprof.profile.tracebacks import TracebackStyle
from ebpfprof.server import goroutine_text
from symbolizer import ElfFile, GoBinary, SymbolizerError


def text(pid: int, debug: int) -> bytes:
    """What net/http/pprof of the process's Go version writes with ?debug=N, N not 0.

    1, or less than 0: goroutines by stacks. 2 or more: all of them as in a crash. The process runs
    on meanwhile, and needs no recording. Raises TargetGone, PermissionDenied, UnreadableMemory,
    CorruptBinary or UnsupportedTarget.
    """
    is_traceback = debug >= 2
    with _opened(pid) as (target, binary):
        layout = binary.layout
        has_labels = not is_traceback or shows_labels(binary, pid)
        style = TracebackStyle(layout.tracebacks, has_labels, layout.profile_stacks.max_depth)
        with _reader(target, binary, has_arguments=is_traceback, has_labels=has_labels) as reader:
            if is_traceback:
                return traceback_text.text(reader.read(), style)
            found = goroutine_text.text(reader.read(), style)
            return found.encode("utf-8", "backslashreplace")


def count(pid: int) -> int:
    """How many goroutines the process has, without the runtime's own. Raises what text() does."""
    with (
        _opened(pid) as (target, binary),
        _reader(target, binary, has_arguments=False, has_labels=False) as reader,
    ):
        return reader.count()


def _reader(
    target: Target, binary: GoBinary, *, has_arguments: bool, has_labels: bool
) -> TracebackReader:
    bias = target.load_bias(binary.elf.entry)
    return TracebackReader(target, binary, bias, has_arguments=has_arguments, has_labels=has_labels)


@contextmanager
def _opened(pid: int) -> Iterator[tuple[Target, GoBinary]]:
    """A process and its program, opened for a moment; translates errors of its file."""
    with Target(pid) as target:
        try:
            with ElfFile.open(target.exe_fd, target.allowance) as elf:
                yield target, GoBinary.open(elf, allow_unknown_version=True)
        except (SymbolizerError, struct.error) as error:
            raise for_user(target, error) from error
