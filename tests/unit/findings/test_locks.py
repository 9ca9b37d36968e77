"""Hot locks, and what their holders do."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.findings import locks
from ebpfprof.profile.waiting_for import LockState
from tests.unit.findings.evidence import (
    HANDLER,
    LOCK,
    READ,
    burns,
    dump,
    evidence,
    for_lock,
    for_peer,
    goroutine,
    waits,
)

REFILL = "main.(*PriceCache).refill:86"
GET = "main.(*PriceCache).get:41"
PEER = "10.0.0.7:5432"
MUTEX = LockState(0x1000, "sync.Mutex", "main.PriceCache.mu", is_locked=True, waiters=3)


def test_a_lock_that_takes_most_of_the_time_is_named_with_what_its_holder_waits_for() -> None:
    holds = goroutine(7, "IO wait", *READ, REFILL, *HANDLER, waits_for=for_peer(PEER))
    waiting = goroutine(8, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(MUTEX, 7))
    (finding,) = locks.find(
        evidence(
            waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3),
            waits("IO wait", *READ, REFILL, *HANDLER, mean=1),
            dumps=[dump(holds, waiting)] * 5,
        )
    )
    assert (finding.kind, finding.share) == ("hot_lock", 0.75)
    assert finding.title == "Lock main.PriceCache.mu: 75 % of the time of requests."
    assert PEER in " ".join(finding.lines)
    assert "main.(*PriceCache).refill" in " ".join(finding.lines)


def test_a_lock_that_is_rarely_waited_for_is_none() -> None:
    found = evidence(
        waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=0.1),
        waits("IO wait", *READ, REFILL, *HANDLER, mean=1),
    )
    assert not list(locks.find(found))
    assert locks.fine(found) == "locks 9.1 %"


def test_a_lock_that_is_free_while_many_wait_is_a_convoy() -> None:
    free = replace(MUTEX, is_locked=False, waiters=40)
    waiting = goroutine(8, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(free))
    held = goroutine(8, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(MUTEX))
    samples = (
        waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3),
        waits("running", *HANDLER, mean=1),
    )
    (finding,) = locks.find(evidence(*samples, dumps=[dump(waiting)] * 4 + [dump(held)] * 2))
    assert finding.kind == "convoy"
    assert finding.title == "Convoy at lock main.PriceCache.mu: 75 % of the time of requests."
    assert finding.lines[1].startswith("It is free at 4 of 6 moments")
    (finding,) = locks.find(evidence(*samples, dumps=[dump(waiting)] * 2 + [dump(held)] * 4))
    assert finding.kind == "hot_lock"


def test_a_lock_that_was_read_after_its_waiters_had_it_says_nothing() -> None:
    late = replace(MUTEX, is_locked=False, waiters=4)
    waiting = [
        goroutine(goid, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(late))
        for goid in range(10, 20)
    ]
    (finding,) = locks.find(
        evidence(waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3), dumps=[dump(*waiting)] * 9)
    )
    assert finding.kind == "hot_lock"
    assert len(finding.lines) == 1


def test_a_holder_that_runs_is_where_the_cpu_time_below_its_lock_is() -> None:
    waiting = goroutine(8, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(MUTEX))
    computing = ("crypto/sha256.block", "main.(*PriceCache).compute:52", GET, *HANDLER)
    (finding,) = locks.find(
        evidence(
            waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3),
            dumps=[dump(waiting)] * 5,
            cpu=[
                burns(*computing, cores=0.5),
                burns("sync.(*Mutex).Unlock", GET, *HANDLER, cores=0.7),
                burns("main.other:1", cores=0.9),
            ],
        )
    )
    assert finding.lines[1] == (
        "Its holder runs, mostly in main.(*PriceCache).compute (pricecache.go:52)."
    )


def test_the_writer_that_blocks_readers_is_named_by_the_method_of_the_locks_type() -> None:
    lock = LockState(0x1000, "sync.RWMutex", "main.PriceCache.mu", is_locked=True)
    reload = "main.(*PriceCache).reload:25"
    writes = goroutine(7, "IO wait", *READ, "main.query:9", reload, waits_for=for_peer(PEER))
    reads = ("runtime.gopark", "runtime.semacquire1", "sync.(*RWMutex).RLock", GET, *HANDLER)
    waiting = goroutine(8, "sync.RWMutex.RLock", *reads, waits_for=for_lock(lock, 7))
    (finding,) = locks.find(
        evidence(waits("sync.RWMutex.RLock", *reads, mean=3), dumps=[dump(writes, waiting)] * 5)
    )
    assert finding.lines[1] == (
        f"Held by main.(*PriceCache).reload (pricecache.go:25), which waits for {PEER}."
    )


def test_a_lock_is_named_by_the_function_that_began_where_the_stack_is_not_known() -> None:
    began = ("[moved: no stack]", "main.charge:31")
    (finding,) = locks.find(evidence(waits("sync.Mutex.Lock", *began, mean=3)))
    assert finding.title == (
        "A lock in main.charge (x.go:31): 100 % of the time of goroutines at work."
    )
