"""Threads in system calls and in C, by what they wait for."""

from __future__ import annotations

from typing import Final

import pytest

from ebpfprof.findings import calls as rule
from ebpfprof.findings.evidence import BeforeAndAfter, Evidence
from ebpfprof.findings.finding import Finding
from ebpfprof.findings.host import HostMoment
from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.waiting_for import OpenFile, SystemCall, ThreadWait, WaitsFor
from tests.unit.findings.evidence import HANDLER, READ, dump, evidence, goroutine, waits

FSYNC: Final = ("syscall.Syscall", "syscall.Fsync", "os.(*File).Sync", "main.(*desk).store:24")
IN_READ: Final = ("syscall.Syscall", "syscall.read", "syscall.Read", "main.(*hub).await:32")
IN_C: Final = ("runtime.cgocall", "main._Cfunc_locate", "main.(*finder).locate:41")
ON_DISK: Final = OpenFile(7, "file", path="/data/wal")
FIFO: Final = OpenFile(7, "pipe", path="/run/gate")


def in_call(
    goid: int,
    stack: tuple[str, ...],
    name: str = "",
    file: OpenFile | None = None,
    *,
    wait: int | None = None,
) -> DumpedGoroutine:
    """A goroutine in a system call that waits, or, without a name, runs."""
    call = SystemCall(0, name, (), file) if name else None
    thread = ThreadWait(100 + goid, runs=not name, call=call)
    return goroutine(goid, "syscall", *stack, waits_for=WaitsFor(thread=thread), wait=wait)


def found(*args: object, **fields: object) -> list[Finding]:
    of = evidence(*args, **fields)  # type: ignore[arg-type]  # mypy can't know the fields
    return list(rule.find(of))


def stalled(us: int) -> BeforeAndAfter[HostMoment]:
    return BeforeAndAfter(
        HostMoment(cpu_ns=0, stalled_us={"io": 0}),
        HostMoment(cpu_ns=0, stalled_us={"io": us}),
    )


def desk(mean: float, *, handler: tuple[str, ...] = HANDLER, name: str = "fsync") -> Evidence:
    """Goroutines that write to a disk, and one that waits for the network."""
    dumps = [dump(*(in_call(n, (*FSYNC, *handler), name, ON_DISK) for n in (1, 2)))] * 8
    return evidence(
        waits("syscall", *FSYNC, *handler, mean=mean),
        waits("IO wait", *READ, "main.f", *HANDLER, mean=1),
        dumps=dumps,
        host=stalled(4_000_000),
    )


def test_a_slow_disk() -> None:
    (finding,) = rule.find(desk(3))
    assert finding.kind == "slow_disk"
    assert finding.title == "Slow disk: 75 % of the time of requests (fsync)."
    assert finding.lines == (
        "main.(*desk).store (desk.go:24): 3.0 threads wait on average, in fsync of /data/wal.",
        "Tasks in the container waited for disks 40 % of the time.",
    )
    assert finding.place
    assert finding.place.line == 24


def test_a_little_time_for_disks_is_no_fault() -> None:
    assert list(rule.find(desk(0.1))) == []
    assert rule.fine(desk(0.1)) == "disk 9.1 %"


def test_a_disk_that_only_background_work_waits_for_is_no_fault_of_a_server() -> None:
    assert list(rule.find(desk(3, handler=("main.compact",)))) == []


def test_calls_that_run_wait_for_nothing() -> None:
    """As reads from the page cache: their threads use a processor."""
    assert list(rule.find(desk(3, name=""))) == []


def test_calls_of_which_nothing_is_known_are_no_fault() -> None:
    assert found(waits("syscall", *FSYNC, *HANDLER, mean=3)) == []


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (ON_DISK, "slow_disk"),
        (FIFO, "system_calls"),
        (OpenFile(7, "device", path="/dev/pts/1"), "system_calls"),
        (OpenFile(7, "file", path="/proc/7/status"), "system_calls"),
        (OpenFile(7, "file", path="anon_inode:inotify"), "system_calls"),
        (OpenFile(7, "tcp", peer="10.0.0.7:80"), "system_calls"),
    ],
)
def test_what_a_read_waits_for(file: OpenFile, kind: str) -> None:
    stack = (*IN_READ, *HANDLER)
    (finding,) = found(
        waits("syscall", *stack, mean=3), dumps=[dump(in_call(1, stack, "read", file))] * 8
    )
    assert finding.kind == kind


def test_blocking_system_calls() -> None:
    stack = (*IN_READ, *HANDLER)
    members = [
        in_call(n, stack, "read", OpenFile(n, "pipe", path=f"/run/gate{n}")) for n in range(1, 9)
    ]
    (finding,) = found(waits("syscall", *stack, mean=8), dumps=[dump(*members)] * 3)
    assert finding.title == (
        "Blocking system calls: 100 % of the time of requests (read); each keeps a thread."
    )
    assert finding.lines == (
        "main.(*hub).await (hub.go:32): 8.0 threads wait on average, in read of /run/gate1 and "
        "7 other files.",
    )


def test_threads_that_wait_in_one_call_all_the_time_are_no_fault() -> None:
    """As those of a supervisor, one for each child."""
    stack = ("syscall.Syscall6", "syscall.wait4", "syscall.Wait4", "main.watch")
    for wait, number in ((7, 0), (None, 1)):  # another call in each dump
        dumps = [
            dump(*(in_call(n, stack, "wait4", wait=wait or 100 * at + n) for n in range(1, 7)))
            for at in range(3)
        ]
        assert len(found(waits("syscall", *stack, mean=6), dumps=dumps)) == number


def test_a_few_threads_in_system_calls_are_no_fault() -> None:
    stack = (*IN_READ, "main.main")
    dumps = [dump(in_call(1, stack, "read", FIFO, wait=at)) for at in range(8)]
    assert found(waits("syscall", *stack, mean=1), dumps=dumps) == []


def test_calls_of_c() -> None:
    stack = (*IN_C, *HANDLER)
    (finding,) = found(
        waits("syscall", *stack, mean=30), dumps=[dump(in_call(1, stack, "clock_nanosleep"))] * 9
    )
    assert finding.kind == "cgo_calls"
    assert finding.title == (
        "Calls of C: 100 % of the time of requests (locate); each keeps a thread."
    )
    assert finding.lines == (
        "main.(*finder).locate (finder.go:41): 30 threads wait on average, in clock_nanosleep.",
    )
    assert found(waits("syscall", *stack, mean=30), dumps=[dump(in_call(1, stack))] * 9) == []


def test_few_dumps_are_not_sure() -> None:
    """A third of the threads wait by these dumps, more or less."""
    stack = (*IN_READ, *HANDLER)
    members = [in_call(1, stack, "read", FIFO), in_call(2, stack), in_call(3, stack)]
    of = (waits("syscall", *stack, mean=1),)
    assert found(*of, dumps=[dump(*members)]) == []
    assert len(found(*of, dumps=[dump(*members)] * 20)) == 1
