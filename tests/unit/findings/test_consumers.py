"""Consumers that do not keep up with those that send to them."""

from __future__ import annotations

import pytest

from ebpfprof.findings import consumers
from ebpfprof.findings.evidence import Evidence
from ebpfprof.profile.goroutines import DumpedGoroutine
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
FULL = channel(0xC0, 20, 20)
RECORD = (*SEND, "main.(*auditLog).record:18", *HANDLER)
QUERY = (*READ, "main.query:3", *HANDLER)
WRITE = "main.(*auditLog).write:23"
SENDERS = [goroutine(one, "chan send", *RECORD, channels=(FULL,)) for one in range(5, 9)]


def writer(*functions: str) -> DumpedGoroutine:
    return goroutine(2, "IO wait", *READ, *functions, waits_for=for_peer(PEER))


def test_the_goroutine_that_is_always_at_work_and_of_the_senders_type_is_the_consumer() -> None:
    other = goroutine(3, "chan receive", *RECEIVE, "main.(*auditLog).rotate:40")
    found = evidence(
        waits("chan send", *RECORD, mean=4),
        waits("IO wait", *QUERY, mean=4),
        dumps=[dump(*SENDERS, writer(WRITE), other)] * 5,
    )
    (finding,) = consumers.find(found)
    assert (finding.kind, finding.share) == ("slow_consumer", 0.5)
    assert finding.title == (
        "Slow consumer main.(*auditLog).write (auditlog.go:23): "
        "requests wait 50 % of their time to send to it."
    )
    assert finding.lines == (
        "4.0 goroutines wait to send to a full channel (capacity 20) in "
        "main.(*auditLog).record (auditlog.go:18).",
        f"1 goroutine receives, and waits for {PEER}.",
    )


def test_the_goroutine_that_waited_for_the_channel_at_another_time_is_the_consumer() -> None:
    idle = goroutine(2, "chan receive", *RECEIVE, "other.drain:4", channels=(FULL,))
    found = evidence(
        waits("chan send", *RECORD, mean=4),
        dumps=[dump(idle), *[dump(*SENDERS, writer("other.drain:5"))] * 4],
    )
    (finding,) = consumers.find(found)
    assert finding.place
    assert finding.place.function == "other.drain"


def test_senders_each_with_a_channel_of_its_own_have_no_slow_consumer() -> None:
    own = [
        goroutine(one, "chan send", *RECORD, channels=(channel(one, 0, 0),)) for one in range(5, 9)
    ]
    found = evidence(waits("chan send", *RECORD, mean=4), dumps=[dump(*own)] * 5)
    assert not list(consumers.find(found))


def test_one_sender_at_a_time_has_no_slow_consumer() -> None:
    found = evidence(
        waits("chan send", *RECORD, mean=1), dumps=[dump(SENDERS[0], writer(WRITE))] * 5
    )
    assert not list(consumers.find(found))


@pytest.mark.parametrize(("sending", "is_slow"), [(2, False), (8, True)])
def test_a_pipeline_in_balance_is_none(sending: int, is_slow: bool) -> None:
    decode = (*SEND, "main.(*pipe).emit:3", "main.(*pipe).decode:9")
    senders = [goroutine(one, "chan send", *decode, channels=(FULL,)) for one in range(5, 9)]
    found = evidence(
        waits("chan send", *decode, mean=sending),
        waits("running", "main.(*pipe).pack:1", mean=1),
        dumps=[dump(*senders, goroutine(2, "IO wait", *READ, "main.(*pipe).pack:7"))] * 5,
    )
    assert bool(list(consumers.find(found))) is is_slow


def of_producer(*producer: DumpedGoroutine, asking: int = 4) -> Evidence:
    empty = channel(0xC1, 0, 0)
    ask = (*RECEIVE, "main.(*office).next:26", *HANDLER)
    asks = [goroutine(one, "chan receive", *ask, channels=(empty,)) for one in range(5, 9)]
    return evidence(
        waits("chan receive", *ask, mean=asking),
        waits("IO wait", *QUERY, mean=4),
        dumps=[dump(*asks, one) for one in producer],
    )


def test_a_goroutine_that_is_always_at_work_for_those_that_receive_is_a_slow_producer() -> None:
    works = goroutine(2, "IO wait", *READ, "main.(*office).reserve:19", waits_for=for_peer(PEER))
    (finding,) = consumers.find(of_producer(*[works] * 5))
    assert (finding.kind, finding.share) == ("slow_producer", 0.5)
    assert finding.title == (
        "Slow producer main.(*office).reserve (office.go:19): "
        "requests wait 50 % of their time to receive from it."
    )
    assert finding.lines == (
        "4.0 goroutines wait to receive from a channel in main.(*office).next (office.go:26).",
        f"1 goroutine sends, and waits for {PEER}.",
    )
    assert not list(consumers.find(of_producer(*[works] * 5, asking=0)))


def test_requests_that_wait_for_events_have_no_slow_producer() -> None:
    sleeps = goroutine(2, "sleep", "runtime.gopark", "time.Sleep", "main.(*office).reserve:19")
    works = goroutine(2, "IO wait", *READ, "main.(*office).reserve:19")
    assert not list(consumers.find(of_producer(*[sleeps] * 5)))
    assert not list(consumers.find(of_producer(*[sleeps] * 2, *[works] * 3)))
    assert list(consumers.find(of_producer(sleeps, *[works] * 4)))


def test_a_function_without_a_type_is_the_consumer_of_its_package() -> None:
    record = (*SEND, "main.record:18", *HANDLER)
    senders = [goroutine(one, "chan send", *record, channels=(FULL,)) for one in range(5, 9)]
    found = evidence(
        waits("chan send", *record, mean=4),
        waits("IO wait", *QUERY, mean=4),
        dumps=[dump(*senders, writer("main.write:23"))] * 5,
    )
    (finding,) = consumers.find(found)
    assert finding.title.startswith("Slow consumer main.write (x.go:23): ")


def test_a_select_for_a_channel_that_is_as_often_full_as_empty_has_no_slow_end() -> None:
    ask = (*SELECT, "main.(*office).next:26", *HANDLER)
    works = goroutine(2, "IO wait", *READ, "main.(*office).reserve:19", waits_for=for_peer(PEER))

    def selecting(*lengths: int) -> Evidence:
        dumps = [
            dump(
                *[
                    goroutine(one, "select", *ask, channels=(channel(0xC1, length, 20),))
                    for one in range(5, 9)
                ],
                works,
            )
            for length in lengths
        ]
        return evidence(
            waits("select", *ask, mean=4), waits("IO wait", *QUERY, mean=4), dumps=dumps
        )

    assert not list(consumers.find(selecting(0, 20, 0, 20)))
    (finding,) = consumers.find(selecting(0, 0, 0, 20))
    assert finding.kind == "slow_producer"
    (finding,) = consumers.find(selecting(20, 20, 20, 0))
    assert finding.kind == "slow_consumer"


def test_consumers_were_checked_only_where_something_is_sent() -> None:
    sends = waits("chan send", *RECORD, mean=0.1)
    asks = waits("IO wait", *QUERY, mean=4)
    assert consumers.fine(evidence(sends)) == "no slow consumer"
    assert consumers.fine(evidence(asks)) == ""
