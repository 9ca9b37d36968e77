"""The threads of a process in the forms of net/http/pprof.

The process runs on meanwhile, and needs no recording. Functions raise as
server.read_endpoint.Reader.
"""

from __future__ import annotations

import time

from ebpfprof.goruntime.goroutines.thread_list import ThreadList
from ebpfprof.goruntime.goroutines.threads import ThreadScanner
from ebpfprof.goruntime.open_processes import OpenProcess
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.goroutines.goroutine_stacks import GoroutineStacks
from ebpfprof.profilers.goroutines.thread_profile import samples_now
from ebpfprof.profilers.goroutines.thread_stacks import ThreadStacks
from ebpfprof.server import thread_text


def profile(process: OpenProcess, kind: ProfileKind) -> Profile:
    """The threads now, as a profile of this kind."""
    return _profile(process.go(any_version=True), kind)


def written(process: OpenProcess, kind: ProfileKind, _debug: int) -> bytes:
    """The text of ?debug=1 and higher."""
    go = process.go(any_version=True)
    profile = kind.in_tables(_profile(go, kind))
    return thread_text.text(profile, go.binary, go.load_bias).encode("utf-8", "backslashreplace")


def count(process: OpenProcess) -> int:
    """How many threads Go's list has."""
    binary, bias = process.binary(any_version=True), process.load_bias(any_version=True)
    return len(ThreadList(binary, bias, process.target.pid).read(process.target.memory))


def _profile(go: GoTarget, kind: ProfileKind) -> Profile:
    samples = samples_now(kind, ThreadScanner(go), ThreadStacks(GoroutineStacks(go)))
    return kind.make_profile(samples, go.mappings, time_ns=time.time_ns(), duration_ns=0)
