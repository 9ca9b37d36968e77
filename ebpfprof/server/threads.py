"""The threads of a process in the forms of net/http/pprof.

The process runs on meanwhile, and needs no recording: each call opens it. Functions raise
NoSuchProcess, TargetGone, PermissionDenied, UnreadableMemory, CorruptBinary or UnsupportedTarget.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ebpfprof.goruntime.goroutines.thread_list import ThreadList
from ebpfprof.goruntime.goroutines.threads import ThreadScanner
from ebpfprof.goruntime.process import GoTarget, inspect
from ebpfprof.process.memory import Memory
from ebpfprof.process.process import Target
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profilers.goroutines.goroutine_stacks import GoroutineStacks
from ebpfprof.profilers.threads.kind import THREADCREATE
from ebpfprof.profilers.threads.thread_stacks import ThreadStacks, samples
from ebpfprof.server import thread_text
from ebpfprof.server.opened import opened


def profile(pid: int, kind: ProfileKind) -> Profile:
    """The threads now, as a profile of this kind."""
    with _inspected(pid) as go:
        return _profile(go, kind)


def written(pid: int, kind: ProfileKind, _debug: int) -> bytes:
    """The text of ?debug=1 and higher."""
    with _inspected(pid) as go:
        found = kind.in_tables(_profile(go, kind))
        text = thread_text.text(found, go.binary, go.load_bias)
        return text.encode("utf-8", "backslashreplace")


def count(pid: int) -> int:
    """How many threads Go's list has."""
    with opened(pid) as (target, binary), Memory(target) as memory:
        return len(ThreadList(binary, target.load_bias(binary.elf.entry), pid).read(memory))


def _profile(go: GoTarget, kind: ProfileKind) -> Profile:
    stacks = ThreadStacks(GoroutineStacks(go))
    with ThreadScanner(go) as scanner:
        if kind is THREADCREATE:
            made = stacks.created(each.creation for each in scanner.machines())
            found = [Sample(stack, (count,)) for stack, count in made.items()]
        else:
            found = samples(stacks.counted(scanner.scan()), Counter())
    return kind.make_profile(found, go.mappings, time_ns=time.time_ns(), duration_ns=0)


@contextmanager
def _inspected(pid: int) -> Iterator[GoTarget]:
    with Target(pid) as target:
        go = inspect(target, allow_unknown_go=True)
        try:
            yield go
        finally:
            go.binary.elf.close()
