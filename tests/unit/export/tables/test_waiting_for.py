"""What goroutines wait for, in lines for people and in JSON."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.export.tables import waiting_for
from ebpfprof.profile.waiting_for import (
    NOTHING,
    FileWait,
    LockState,
    OpenFile,
    SystemCall,
    ThreadWait,
    WaitsFor,
)

MUTEX = LockState(0xC000010000, "sync.Mutex", "main.Cache.mu", is_locked=True, waiters=3)
RW = LockState(0xC000020000, "sync.RWMutex", None, readers=2, writer_waits=True)
CONNECTION = OpenFile(7, "tcp", "10.0.0.1:8080", "10.0.0.7:51022")


def lines(*waits: WaitsFor) -> list[str]:
    return waiting_for.lines(waits)


def files(*some: OpenFile, is_write: bool = False) -> list[str]:
    return lines(*(WaitsFor(file_wait=FileWait(each, is_write)) for each in some))


def test_a_lock_has_its_name_and_who_may_hold_it() -> None:
    assert lines(WaitsFor(lock=MUTEX, may_hold=(9,))) == [
        "for main.Cache.mu (sync.Mutex at 0xc000010000)",
        "it may be held by goroutine 9",
    ]
    assert lines(WaitsFor(lock=RW, may_hold=(9, 10), behind=12)) == [
        "for the sync.RWMutex at 0xc000020000, which 2 readers hold; a writer waits",
        "it may be held by goroutines 9 and 10",
        "goroutine 12 wants to write first",
    ]
    free = replace(MUTEX, is_locked=False)
    assert lines(WaitsFor(lock=free)) == [
        "for main.Cache.mu (sync.Mutex at 0xc000010000), which is free now"
    ]


def test_many_holders_are_counted() -> None:
    found = lines(WaitsFor(lock=MUTEX, may_hold=tuple(range(1, 12))))
    assert found[1] == "it may be held by goroutines 1, 2, 3, 4, 5, 6, 7, 8 and 3 more"


def test_groups_count_their_locks() -> None:
    others = [WaitsFor(lock=replace(MUTEX, address=address)) for address in range(1, 6)]
    found = lines(*others, WaitsFor(lock=MUTEX), WaitsFor(lock=MUTEX))
    assert found[0] == "2 goroutines: for main.Cache.mu (sync.Mutex at 0xc000010000)"
    assert found[-1] == "for 3 other locks"


def test_files_say_what_is_done_with_them() -> None:
    listener = OpenFile(3, "tcp", ":8080", is_listener=True)
    connecting = OpenFile(4, "tcp", "10.0.0.1:5000", "10.0.0.9:5432", is_connecting=True)
    assert files(CONNECTION) == ["reads from 10.0.0.7:51022, here 10.0.0.1:8080 (tcp, fd 7)"]
    assert files(CONNECTION, is_write=True)[0].startswith("writes to 10.0.0.7:51022, here ")
    assert files(listener) == ["accepts connections on :8080 (tcp, fd 3)"]
    assert files(connecting) == ["connects to 10.0.0.9:5432 (tcp, fd 4)"]
    assert files(OpenFile(5, "unix", path="/run/x")) == ["reads from unix /run/x (fd 5)"]
    assert files(OpenFile(6, "pipe")) == ["reads from a pipe (fd 6)"]
    assert files(OpenFile(6, "file", path="/dev/tty")) == ["reads from /dev/tty (fd 6)"]


def test_groups_count_their_connections_and_peers() -> None:
    some = [replace(CONNECTION, fd=fd, peer=f"10.0.0.{fd % 5}:{fd}") for fd in range(10, 30)]
    assert files(*some) == [
        "20 read from tcp on 10.0.0.1:8080; "
        "peers: 10.0.0.0 (4), 10.0.0.1 (4), 10.0.0.2 (4), 2 others"
    ]
    # A client: the servers are fewer than the ports here.
    some = [replace(CONNECTION, local=f"10.0.0.1:{fd}", peer="10.0.0.2:80") for fd in range(9)]
    assert files(*some) == ["9 read from tcp: 10.0.0.2:80"]


def test_what_is_known_of_one_of_several_says_so() -> None:
    one = WaitsFor(file_wait=FileWait(CONNECTION, False))
    assert lines(NOTHING, one, NOTHING) == [
        "one of them reads from 10.0.0.7:51022, here 10.0.0.1:8080 (tcp, fd 7)"
    ]
    assert lines(NOTHING, WaitsFor(lock=MUTEX))[0] == (
        "1 goroutine: for main.Cache.mu (sync.Mutex at 0xc000010000)"
    )


def test_system_calls_have_their_arguments() -> None:
    call = SystemCall(0, "read", (("fd", 7), ("buffer", 0xC000012345), ("count", 4096)))
    here = ThreadWait(41, False, replace(call, file=CONNECTION))
    assert lines(WaitsFor(thread=here)) == [
        "in read(fd 7, buffer 0xc000012345, count 4096): "
        "tcp 10.0.0.1:8080 with 10.0.0.7:51022, thread 41"
    ]
    odd = SystemCall(257, "openat", (("fd", 0xFFFFFF9C), ("flags", (1 << 64) - 1)))
    assert lines(WaitsFor(thread=ThreadWait(41, False, odd))) == [
        "in openat(fd -100, flags -1), thread 41"
    ]
    assert lines(*[WaitsFor(thread=ThreadWait(41, False, odd))] * 3) == [
        "3 in openat(fd -100, flags -1)"
    ]
    assert lines(WaitsFor(thread=ThreadWait(41, True, None))) == []
    assert lines(WaitsFor(thread=ThreadWait(41, False, None))) == [
        "waits in the kernel, outside of system calls, thread 41"
    ]


def test_sleeps_say_when_they_end() -> None:
    second = 1_000_000_000
    assert lines(WaitsFor(wakes_in_ns=32 * second // 10)) == ["wakes in 3.20 s"]
    assert lines(WaitsFor(wakes_in_ns=-second)) == ["should have woken 1.00 s ago"]
    assert lines(WaitsFor(wakes_in_ns=second), WaitsFor(wakes_in_ns=90 * second)) == [
        "the first wakes in 1.00 s, the last in 1.50 min"
    ]


def test_json_has_all_of_it_or_nothing() -> None:
    assert waiting_for.as_json(NOTHING) is None
    found = waiting_for.as_json(
        WaitsFor(MUTEX, (9,), 0, FileWait(CONNECTION, True), wakes_in_ns=2_000_000_000)
    )
    assert found == {
        "lock": {
            "address": "0xc000010000",
            "type": "sync.Mutex",
            "name": "main.Cache.mu",
            "locked": True,
            "waiters": 3,
            "readers": 0,
            "writer_waits": False,
            "counter": 0,
            "may_be_held_by": [9],
            "surely_held_by": [],
            "behind_writer": None,
            "lost_wake": None,
        },
        "file": {
            "waits_to": "write",
            "fd": 7,
            "kind": "tcp",
            "local": "10.0.0.1:8080",
            "peer": "10.0.0.7:51022",
            "path": None,
            "listens": False,
        },
        "wakes_in_s": 2.0,
    }
