"""Hot locks, and what their holders do."""

from __future__ import annotations

from ebpfprof.findings import locks
from ebpfprof.profile.waiting_for import LockState
from tests.unit.findings.evidence import (
    HANDLER,
    LOCK,
    READ,
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
