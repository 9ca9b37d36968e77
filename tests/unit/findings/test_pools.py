"""Pools that are too small: what is waited for, and what those do that use it."""

from __future__ import annotations

from ebpfprof.findings import consumers, pools
from ebpfprof.findings.evidence import Evidence
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
        "Pool: 60 % of the time of requests waits for a connection of database/sql "
        "in main.(*store).load (store.go:41)."
    )
    assert finding.lines == (
        "3.0 goroutines wait for it on average; 2 goroutines use it at most.",
        f"A goroutine that uses it waits for {PEER}.",
    )


def test_short_waits_and_uncertain_ones_are_no_finding() -> None:
    assert not list(pools.find(of_sql(waiting=0.4)))
    assert not list(pools.find(of_sql(waiting=3, error=3)))
    assert pools.fine(of_sql(waiting=0.02)) == "pools 0.99 %"


def test_a_channel_whose_items_are_used_behind_the_place_where_others_wait_is_a_pool() -> None:
    (finding,) = pools.find(of_channel(capacity=2))
    assert finding.title == (
        "Pool: 60 % of the time of requests waits for an item of a channel of 2 "
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
    assert "waits for a place in a channel of 2" in finding.title
    assert not list(consumers.find(found))


def test_connections_of_http_that_are_being_made_are_no_pool() -> None:
    waiting = (*SELECT, "net/http.(*Transport).getConn", "main.(*desk).label:5", *HANDLER)
    free = evidence(waits("select", *waiting, mean=3), waits("IO wait", *USES, mean=1))
    assert [one.kind for one in pools.find(free)] == ["starved_pool"]
    dialing = evidence(
        waits("select", *waiting, mean=3),
        waits("IO wait", *USES, mean=1),
        waits("IO wait", *READ, *DIALS, mean=3),
    )
    assert not list(pools.find(dialing))
