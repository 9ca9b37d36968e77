"""Evidence made by hand: what a process did for ten seconds, in a few lines a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ebpfprof.findings.evidence import Evidence, ProgramFacts
from ebpfprof.profile.diagnosis import diagnosis
from ebpfprof.profile.goroutines import Channel, DumpedGoroutine, GoroutineDump
from ebpfprof.profile.model import Frame, Label, Location, Profile, Sample, ValueType
from ebpfprof.profile.operations import STATE
from ebpfprof.profile.waiting_for import FileWait, LockState, OpenFile, WaitsFor

SECONDS: Final = 10
LENGTH_NS: Final = SECONDS * 1_000_000_000
HANDLER: Final = ("net/http.HandlerFunc.ServeHTTP", "net/http.(*conn).serve")
"""The outer functions of a goroutine that serves a request."""
RECEIVE: Final = ("runtime.gopark", "runtime.chanrecv", "runtime.chanrecv1")
SEND: Final = ("runtime.gopark", "runtime.chansend", "runtime.chansend1")
SELECT: Final = ("runtime.gopark", "runtime.selectgo")
LOCK: Final = ("runtime.gopark", "runtime.semacquire1", "sync.(*Mutex).Lock")
READ: Final = (
    *("runtime.gopark", "runtime.netpollblock", "internal/poll.runtime_pollWait"),
    *("internal/poll.(*FD).Read", "net.(*netFD).Read", "net.(*conn).Read"),
)
_SAMPLES: Final = 200


def stack(*functions: str) -> tuple[Frame, ...]:
    """Frames of functions, innermost first: "main.(*store).load" is in store.go, others in x.go.

    A line may follow the name: "main.load:41".
    """
    return tuple(_frame(function) for function in functions)


def _frame(function: str) -> Frame:
    name, _, line = function.rpartition(":")
    if not line.isdigit():
        name, line = function, "1"
    receiver = name.partition("(*")[2].partition(")")[0]
    return Frame(name, f"/src/{receiver.lower() or 'x'}.go", int(line))


def waits(state: str, *functions: str, mean: float, error: float = 0.0) -> Sample:
    """A sample of a wall profile: `mean` goroutines were there at a time, with an error."""
    locations = tuple(Location(0, None, (frame,)) for frame in stack(*functions))
    hits, ns = round(mean * _SAMPLES), round(mean * LENGTH_NS)
    variance = (error * LENGTH_NS) ** 2
    return Sample(locations, (hits, ns), (Label(STATE, state),), variance)


def burns(*functions: str, cores: float) -> Sample:
    """A sample of a CPU profile: the CPU time of a stack, in processors."""
    locations = tuple(Location(0, None, (frame,)) for frame in stack(*functions))
    return Sample(locations, (round(cores * 100 * SECONDS), round(cores * LENGTH_NS)))


def goroutine(goid: int, state: str, *functions: str, **fields: object) -> DumpedGoroutine:
    """A goroutine of a dump, with other fields of DumpedGoroutine by name."""
    plain: dict[str, Any] = {
        "is_whole": True,
        "stood_ns": 0,
        "waited_ns": 0,
        "is_locked": False,
        "created_by": None,
        "parent": 0,
        "labels": (),
        "wait": None if state in ("running", "runnable") else goid << 16,
    }
    return DumpedGoroutine(goid, state, stack(*functions), **(plain | fields))


def channel(address: int, length: int, capacity: int) -> Channel:
    """An open channel."""
    return Channel(address, length, capacity, False)


def for_lock(lock: LockState, *holders: int) -> WaitsFor:
    """What a goroutine waits for that waits for a lock, which goroutines hold."""
    return WaitsFor(lock=lock, may_hold=holders)


def for_peer(peer: str, *, local: str = "10.0.0.1:40001", is_connecting: bool = False) -> WaitsFor:
    """What a goroutine waits for that reads from a connection."""
    file = OpenFile(7, "tcp", local, peer, is_connecting=is_connecting)
    return WaitsFor(file_wait=FileWait(file, is_connecting))


def listener(local: str) -> WaitsFor:
    """What a goroutine waits for that accepts connections."""
    return WaitsFor(file_wait=FileWait(OpenFile(3, "tcp", local, is_listener=True), False))


def dump(*goroutines: DumpedGoroutine, at_s: float = 0.0) -> GoroutineDump:
    """A dump of goroutines, `at_s` after the beginning."""
    read_ns = 1_000_000_000 + round(at_s * 1e9)
    return GoroutineDump(42, "shop", "go1.27.3", 0, goroutines, 5, 0, 0, read_ns=read_ns)


def evidence(
    *samples: Sample,
    dumps: Sequence[GoroutineDump] = (),
    cpu: Sequence[Sample] = (),
    **fields: Any,  # noqa: ANN401 - those of Evidence
) -> Evidence:
    """What was observed: samples of the wall profile, dumps, others by the names of Evidence."""
    of_all = tuple(replace(one, apart_ns=LENGTH_NS) for one in dumps) or (dump(),)
    plain: dict[str, Any] = {
        "program": ProgramFacts(42, "shop", "go1.27.3", "example.com/shop"),
        "length_ns": LENGTH_NS,
        "wall": _profile("wall", samples),
        "cpu": _profile("cpu", cpu) if cpu else None,
        "dumps": of_all,
        "diagnosis": diagnosis(of_all[-1]),
    }
    return Evidence(**(plain | fields))


def _profile(kind: str, samples: Sequence[Sample]) -> Profile:
    types = (ValueType("samples", "count"), ValueType(kind, "nanoseconds"))
    return Profile(kind, types, types[1], 1, tuple(samples), (), 0, LENGTH_NS, ())
