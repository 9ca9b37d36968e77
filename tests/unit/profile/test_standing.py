"""Large groups that stand still in a send are findings; receivers are not."""

from __future__ import annotations

from dataclasses import replace

from ebpfprof.profile.diagnosis import diagnosis
from ebpfprof.profile.goroutines import Channel, DumpedGoroutine, GoroutineDump
from ebpfprof.profile.model import Frame

PLACE = Frame("main.search", "/src/main.go", 7)


def standing(goid: int, channel: int, state: str = "chan send") -> DumpedGoroutine:
    return DumpedGoroutine(
        *(goid, state, (PLACE,), True, 3, goid, False, None, 0, ()),
        channels=(Channel(channel, 0, 0, False),),
    )


def found(*goroutines: DumpedGoroutine) -> list[tuple[int, bool]]:
    dump = GoroutineDump(1, "x", "go1.27", 3, goroutines, 0, 0, 0)
    return [(len(e.group.goroutines), e.is_abandoned) for e in diagnosis(dump).senders]


def test_many_senders_to_channels_of_their_own_are_abandoned() -> None:
    senders = [standing(goid, 4096 * goid) for goid in range(1, 21)]
    assert found(*senders) == [(20, True)]


def test_a_receiver_of_one_of_the_channels_may_free_it() -> None:
    senders = [standing(goid, 4096 * goid) for goid in range(1, 21)]
    assert found(*senders, standing(99, 4096, "select")) == [(20, False)]


def test_senders_to_one_channel_may_only_be_slow() -> None:
    assert found(*(standing(goid, 4096) for goid in range(1, 21))) == [(20, False)]


def test_a_few_senders_and_idle_workers_are_not_finding() -> None:
    few = [standing(goid, 4096 * goid) for goid in range(1, 10)]
    workers = [standing(goid, 4096, "chan receive") for goid in range(100, 200)]
    connections = [standing(goid, 4096, "IO wait") for goid in range(200, 300)]
    moving = [replace(standing(goid, 4096), stood_ns=0) for goid in range(300, 400)]
    assert found(*few, *workers, *connections, *moving) == []
