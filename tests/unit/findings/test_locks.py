"""Hot locks, and what their holders do."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.findings import locks
from ebpfprof.profile.goroutines import DumpedGoroutine, HttpRequest
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
    listener,
    waits,
)

REFILL = "main.(*PriceCache).refill:86"
GET = "main.(*PriceCache).get:41"
PEER = "10.0.0.7:5432"
UNSEEN = "No sample showed who holds it. A longer --duration may."
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
    assert finding.lines[1:] == (
        f"Held by main.(*PriceCache).refill (pricecache.go:86), which waits for {PEER}.",
    )


def test_how_often_goroutines_wait_is_said_if_dumps_show_it() -> None:
    leads_ns = (100_000, 6_100_000)
    waiting = [
        goroutine(
            goid,
            "sync.Mutex.Lock",
            *LOCK,
            GET,
            *HANDLER,
            waits_for=for_lock(MUTEX),
            waited_ns=leads_ns[goid % 4 != 0],
        )
        for goid in range(1, 5)
    ]
    (finding,) = locks.find(
        evidence(
            waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=4),
            dumps=[replace(dump(*waiting), leads_ns=leads_ns)] * 10,
        )
    )
    assert finding.lines == (
        "Mutex.Lock in main.(*PriceCache).get (pricecache.go:41): 4.0 goroutines wait on average, "
        "170 ± 50 times a second, about 24 ms each, one for 6.1 ms or longer.",
        UNSEEN,
    )


def test_the_routes_of_requests_that_wait_are_named() -> None:
    def waiting(goid: int, pattern: str) -> DumpedGoroutine:
        return replace(
            goroutine(goid, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(MUTEX)),
            request=HttpRequest("GET", f"/{goid}", pattern) if pattern else None,
        )

    def lines_of(*patterns: str) -> tuple[str, ...]:
        goroutines = (waiting(number, pattern) for number, pattern in enumerate(patterns, 1))
        wall = waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3)
        (finding,) = locks.find(evidence(wall, dumps=[dump(*goroutines)] * 5))
        return finding.lines[1:-1]

    assert lines_of("GET /seats/{id}", "/all", "GET /seats/{id}", "") == (
        "Requests that wait: GET /seats/{id} (67 %), GET /all (33 %).",
    )
    assert lines_of("", "") == ()
    assert lines_of(*map(str, range(1, 12))) == ()


def test_the_time_of_a_hold_is_divided_by_what_the_holder_does() -> None:
    holds = goroutine(
        7,
        "IO wait",
        *READ,
        REFILL,
        waits_for=for_peer(PEER),
        waited_ns=25_000_000,
    )
    waiting = goroutine(8, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(MUTEX, 7))
    (finding,) = locks.find(
        evidence(
            waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3),
            waits("IO wait", *READ, REFILL, mean=0.4),
            # Of another line, where it does not hold the lock.
            waits("IO wait", *READ, "main.(*PriceCache).refill:99", mean=5),
            waits("runnable", "main.parse:3", REFILL, mean=0.02),
            dumps=[dump(holds, waiting)] * 5,
            cpu=[burns("main.parse:3", REFILL, cores=0.08), burns("main.other:1", cores=0.5)],
        )
    )
    assert finding.lines[1:] == (
        "Held by main.(*PriceCache).refill (pricecache.go:86), once for 25 ms or longer.",
        f"80 % of that time it waits for {PEER}, "
        "16 ± 3 % it runs in main.parse (x.go:3), 4 ± 2 % it waits for a processor.",
    )


def test_a_holder_that_moved_while_it_was_read_does_not_wait_for_its_client() -> None:
    accepts = goroutine(3, "IO wait", *READ, "main.serve:1", waits_for=listener("10.0.0.1:8080"))
    late = for_peer("10.0.0.9:40404", local="10.0.0.1:8080")
    holders = [
        goroutine(7, "IO wait", *READ, REFILL, waits_for=waits_for)
        for waits_for in (late, *[for_peer(PEER)] * 3, goroutine(1, "IO wait").waits_for)
    ]
    waiting = goroutine(8, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(MUTEX, 7))
    (finding,) = locks.find(
        evidence(
            waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3),
            waits("IO wait", *READ, REFILL, mean=0.4),
            dumps=[dump(accepts, holder, waiting) for holder in holders],
            cpu=[burns("main.other:1", cores=0.5)],
        )
    )
    assert finding.lines[2] == f"All of that time it waits for {PEER}."


def test_several_functions_that_hold_a_lock_have_their_parts_of_the_time() -> None:
    refill = goroutine(7, "IO wait", *READ, REFILL, waits_for=for_peer(PEER))
    drop = (*READ, "main.(*PriceCache).drop:99")
    drops = goroutine(6, "IO wait", *drop, waits_for=for_peer("10.0.0.8:1"))
    behind = [
        goroutine(8, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(MUTEX, holder))
        for holder in (6, 7)
    ]
    (finding,) = locks.find(
        evidence(
            waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3),
            waits("IO wait", *READ, REFILL, mean=0.6),
            waits("IO wait", *drop, mean=0.2),
            dumps=[dump(drops, behind[0]), *[dump(refill, behind[1])] * 3],
            cpu=[burns("main.other:1", cores=0.5)],
        )
    )
    assert finding.lines[1:] == (
        "Held 75 % of the time by main.(*PriceCache).refill (pricecache.go:86), "
        "25 % by main.(*PriceCache).drop (pricecache.go:99).",
        f"75 % of that time it waits for {PEER}, 25 ± 3 % it waits for 10.0.0.8:1.",
    )


def test_readers_that_hold_a_lock_are_named_too() -> None:
    lock = LockState(0x1000, "sync.RWMutex", "main.PriceCache.mu", readers=2, writer_waits=True)
    report = (*READ, "main.(*PriceCache).report:70", *HANDLER)
    readers = [goroutine(one, "IO wait", *report, waits_for=for_peer(PEER)) for one in (6, 7)]
    writes = ("runtime.gopark", "runtime.semacquire1", "sync.(*RWMutex).Lock", GET, *HANDLER)
    waiting = goroutine(8, "sync.RWMutex.Lock", *writes, waits_for=for_lock(lock, 6, 7))
    (finding,) = locks.find(
        evidence(waits("sync.RWMutex.Lock", *writes, mean=3), dumps=[dump(*readers, waiting)] * 5)
    )
    assert finding.lines[1] == (
        f"Held by main.(*PriceCache).report (pricecache.go:70), which waits for {PEER}."
    )


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
    assert finding.lines[1].startswith("It was free in 4 of 6 samples")
    (finding,) = locks.find(evidence(*samples, dumps=[dump(waiting)] * 2 + [dump(held)] * 4))
    assert finding.kind == "hot_lock"


def test_a_lock_that_was_read_after_its_waiters_had_it_does_not_show_its_holder() -> None:
    late = replace(MUTEX, is_locked=False, waiters=4)
    waiting = [
        goroutine(goid, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(late))
        for goid in range(10, 20)
    ]
    (finding,) = locks.find(
        evidence(waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3), dumps=[dump(*waiting)] * 9)
    )
    assert finding.kind == "hot_lock"
    assert finding.lines[1:] == (UNSEEN,)


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


def test_unknown_locks_are_one_finding_for_each_place_that_waits() -> None:
    charge, refund = (*LOCK, "main.charge:31", *HANDLER), (*LOCK, "main.refund:9", *HANDLER)
    titles = [
        finding.title
        for finding in locks.find(
            evidence(
                waits("sync.Mutex.Lock", *charge, mean=3), waits("sync.Mutex.Lock", *refund, mean=2)
            )
        )
    ]
    assert titles == [
        "A lock in main.charge (x.go:31): 60 % of the time of requests.",
        "A lock in main.refund (x.go:9): 40 % of the time of requests.",
    ]


def test_a_lock_for_which_goroutines_wait_in_two_places_is_one_finding() -> None:
    charge, refund = (*LOCK, "main.charge:31", *HANDLER), (*LOCK, "main.refund:9", *HANDLER)
    waiting = [
        goroutine(goid, "sync.Mutex.Lock", *way, waits_for=for_lock(MUTEX))
        for goid, way in enumerate((charge, refund), 8)
    ]
    (finding,) = locks.find(
        evidence(
            waits("sync.Mutex.Lock", *charge, mean=3),
            waits("sync.Mutex.Lock", *refund, mean=2),
            dumps=[dump(*waiting)] * 5,
        )
    )
    assert finding.title == "Lock main.PriceCache.mu: 100 % of the time of requests."


def test_a_holder_that_runs_in_the_function_that_locks_is_named_by_it() -> None:
    waiting = goroutine(8, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(MUTEX))
    (finding,) = locks.find(
        evidence(
            waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3),
            dumps=[dump(waiting)] * 5,
            cpu=[burns(GET, *HANDLER, cores=0.5), burns("main.other:1", cores=0.9)],
        )
    )
    assert finding.lines[1] == (
        "Its holder runs, mostly in main.(*PriceCache).get (pricecache.go:41)."
    )


def test_a_holder_of_which_no_function_is_known_has_what_it_does_most() -> None:
    asks = goroutine(7, "IO wait", *READ, waits_for=for_peer(PEER))
    other = goroutine(7, "IO wait", *READ, waits_for=for_peer("10.0.0.8:1"))
    waiting = goroutine(8, "sync.Mutex.Lock", *LOCK, GET, *HANDLER, waits_for=for_lock(MUTEX, 7))
    (finding,) = locks.find(
        evidence(
            waits("sync.Mutex.Lock", *LOCK, GET, *HANDLER, mean=3),
            dumps=[dump(other, waiting), *[dump(asks, waiting)] * 3],
        )
    )
    assert finding.lines[1] == (f"Held by a goroutine that waits for {PEER} (3 of 4 samples).")
