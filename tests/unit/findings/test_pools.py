"""Pools that are too small: what is waited for, and what those do that use it."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.findings import consumers, pools
from ebpfprof.findings.evidence import Evidence
from ebpfprof.findings.pool_counts import DatabaseChange, PoolCounts
from ebpfprof.profile.pools import HttpPool, Semaphore, SqlPool
from tests.unit.findings.evidence import (
    HANDLER,
    READ,
    RECEIVE,
    SELECT,
    SEND,
    channel,
    dump,
    evidence,
    for_peer,
    goroutine,
    waits,
)

PEER = "10.0.0.7:5432"
SQL = ("database/sql.(*DB).conn", "database/sql.(*DB).QueryContext", "main.(*store).load:41")
QUERY = ("main.(*conn).exchange:9", "database/sql.(*DB).queryDC", "database/sql.(*DB).QueryContext")
LOAD = ("main.(*store).load:41", *HANDLER)
WAITS = (*RECEIVE, "main.(*pool).acquire:7", "main.(*store).load:20", *HANDLER)
USES = (*READ, "main.(*conn).exchange:9", "main.(*store).load:22", *HANDLER)
DIALS = ("net/http.(*Transport).dialConnFor",)


def of_sql(waiting: float, error: float = 0.0) -> Evidence:
    moment = dump(
        goroutine(1, "IO wait", *READ, *QUERY, *LOAD, waits_for=for_peer(PEER)),
        goroutine(2, "IO wait", *READ, *QUERY, *LOAD, waits_for=for_peer(PEER)),
        goroutine(3, "select", *SELECT, *SQL, *HANDLER),
    )
    return evidence(
        waits("select", *SELECT, *SQL, *HANDLER, mean=waiting, error=error),
        waits("IO wait", *READ, *QUERY, *LOAD, mean=2),
        dumps=[moment] * 5,
    )


def of_channel(capacity: int, length: int = 0) -> Evidence:
    free = channel(0xC0, length, capacity)
    users = [goroutine(one, "IO wait", *USES, waits_for=for_peer(PEER)) for one in (1, 2)]
    waiting = [goroutine(one, "chan receive", *WAITS, channels=(free,)) for one in (3, 4, 5)]
    return evidence(
        waits("chan receive", *WAITS, mean=3),
        waits("IO wait", *USES, mean=2),
        dumps=[dump(*users, *waiting)] * 4,
    )


def test_waits_for_a_connection_of_a_database_name_the_place_and_what_its_users_wait_for() -> None:
    (finding,) = pools.find(of_sql(waiting=3))
    assert (finding.kind, finding.share) == ("starved_pool", 0.6)
    assert finding.title == (
        "Pool: requests wait 60 % of their time for a connection of database/sql, "
        "in main.(*store).load (store.go:41)."
    )
    assert finding.lines == (
        "3.0 goroutines wait for it on average; 2 goroutines use it at most.",
        f"A goroutine that uses it waits for {PEER}.",
    )


def test_a_database_says_itself_what_is_in_use_and_how_long_waits_take() -> None:
    before = SqlPool(0xD, 2, 1, 2, waiting=0, waits=100, waited_ns=10**9, read_ns=10**9)
    after = SqlPool(0xD, 2, 0, 2, waiting=3, waits=2300, waited_ns=78 * 10**9, read_ns=11 * 10**9)
    idle = SqlPool(0xE, 5, 5, 9, waiting=0, waits=7, waited_ns=10**9, read_ns=10**9)
    found = replace(
        of_sql(waiting=3),
        pools=PoolCounts((DatabaseChange(idle, idle), DatabaseChange(before, after))),
    )
    (finding,) = pools.find(found)
    assert finding.lines == (
        "2 of 2 connections in use, 3 goroutines waiting, 220 waits a second, 35 ms each.",
        f"A goroutine that uses it waits for {PEER}.",
    )


def test_a_semaphore_says_itself_how_much_of_it_is_taken() -> None:
    acquire = ("golang.org/x/sync/semaphore.(*Weighted).Acquire", "main.(*store).load:20")
    waiting = goroutine(3, "select", *SELECT, *acquire, *HANDLER)
    users = [goroutine(one, "IO wait", *USES, waits_for=for_peer(PEER)) for one in (1, 2)]
    found = evidence(
        waits("select", *SELECT, *acquire, *HANDLER, mean=3),
        waits("IO wait", *USES, mean=2),
        dumps=[dump(waiting, *users)] * 5,
        pools=PoolCounts(semaphores=(Semaphore(0xA, 9, 1, 0), Semaphore(0xB, 2, 2, 3))),
    )
    (finding,) = pools.find(found)
    assert finding.lines == (
        "2 of 2 in use, 3 goroutines waiting.",
        f"A goroutine that uses it waits for {PEER}.",
    )


def test_short_waits_and_uncertain_ones_are_no_finding() -> None:
    assert not list(pools.find(of_sql(waiting=0.4)))
    assert not list(pools.find(of_sql(waiting=3, error=3)))
    assert pools.fine(of_sql(waiting=0.02)) == "pools 0.99 %"


def test_a_channel_whose_items_are_used_behind_the_place_where_others_wait_is_a_pool() -> None:
    (finding,) = pools.find(of_channel(capacity=2))
    assert finding.title == (
        "Pool: requests wait 60 % of their time for an item of a channel (capacity 2), "
        "in main.(*pool).acquire (pool.go:7)."
    )
    assert finding.lines[1] == f"A goroutine that uses it waits for {PEER}."
    assert not list(consumers.find(of_channel(capacity=2)))


def test_a_channel_of_which_nobody_uses_what_it_held_is_no_pool() -> None:
    assert not list(pools.find(of_channel(capacity=10)))
    assert not list(pools.find(of_channel(capacity=0)))


def test_a_channel_in_which_each_takes_a_place_is_a_semaphore() -> None:
    places = channel(0xC0, 2, 2)
    takes = (*SEND, "main.(*store).load:20", *HANDLER)
    users = [goroutine(one, "IO wait", *USES, waits_for=for_peer(PEER)) for one in (1, 2)]
    waiting = [goroutine(one, "chan send", *takes, channels=(places,)) for one in (3, 4)]
    found = evidence(
        waits("chan send", *takes, mean=2),
        waits("IO wait", *USES, mean=2),
        dumps=[dump(*users, *waiting)] * 4,
    )
    (finding,) = pools.find(found)
    assert "for a place in a channel (capacity 2)" in finding.title
    assert not list(consumers.find(found))


def test_connections_of_http_that_are_being_made_are_no_pool() -> None:
    waiting = (*SELECT, "net/http.(*Transport).getConn", "main.(*desk).label:5", *HANDLER)
    free = evidence(waits("select", *waiting, mean=3), waits("IO wait", *USES, mean=1))
    assert [one.kind for one in pools.find(free)] == ["starved_pool"]
    full = replace(free, pools=PoolCounts(http=(HttpPool("a:80", 1, 9), HttpPool("b:80", 2, 2))))
    (finding,) = pools.find(full)
    assert finding.lines[0] == "2 of 2 connections to b:80 are open (MaxConnsPerHost)."
    dialing = evidence(
        waits("select", *waiting, mean=3),
        waits("IO wait", *USES, mean=1),
        waits("IO wait", *READ, *DIALS, mean=3),
    )
    assert not list(pools.find(dialing))
