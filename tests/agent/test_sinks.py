"""Sinks: bounded queues that no recording waits for, and what becomes of each window."""

from __future__ import annotations

import json
import resource
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.agent.settings import RingSettings, Settings, SinkSettings
from ebpfprof.agent.sinks.folder import INDEX, FolderDelivery
from ebpfprof.agent.sinks.opening import Sinks
from ebpfprof.agent.sinks.queued import QueuedSink
from ebpfprof.agent.sinks.sink import Delivery, Item, Refused, RetryLater
from ebpfprof.agent.sinks.waiting import QueueBounds, size_of
from ebpfprof.errors import RingError
from ebpfprof.export import pprof
from ebpfprof.profile.service import ProcessEnd, ServiceIdentity, ServiceWindow, Unwatched
from tests.agent.waiting import wait_until
from tests.targets_run import DEADLINE_S
from tests.unit.export.small_profile import SMALL

PROFILE = SMALL


def window(number: int) -> ServiceWindow:
    identity = ServiceIdentity("shop", node="n1", labels={"team": "till"})
    times = (1000.0 + number, 1001.0 + number)
    return ServiceWindow(identity, 7, 9, "shop", "go1.27.3", *times, {"block": PROFILE})


class Scripted:
    """A delivery that does what the test says; it holds on until it may continue."""

    def __init__(self, *answers: Exception | None, is_open: bool = True) -> None:
        self._answers = list(answers)
        self.delivered: list[Item] = []
        self.attempts = 0
        self.beats = 0
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.is_closed = False
        if is_open:
            self.gate.set()

    def deliver(self, item: Item) -> None:
        self.attempts += 1
        self.entered.set()
        assert self.gate.wait(DEADLINE_S)
        answer = self._answers.pop(0) if self._answers else None
        if answer:
            raise answer
        self.delivered.append(item)

    def beat(self) -> None:
        self.beats += 1

    def go_on(self, before: Delivery) -> None:
        raise AssertionError(before)

    def close(self) -> None:
        self.is_closed = True


pytestmark = pytest.mark.usefixtures("retries_soon")


def test_windows_are_delivered_in_order_and_counted() -> None:
    delivery = Scripted()
    sink = QueuedSink("x", delivery)
    items = [window(n) for n in range(5)]
    for each in items:
        sink.take(each)
    sink.take(ProcessEnd(7, 9, 5.0))
    sink.close(DEADLINE_S)
    assert delivery.delivered == [*items, ProcessEnd(7, 9, 5.0)]
    assert delivery.is_closed
    counters = sink.counters()
    assert (counters.sent, counters.retried, dict(counters.dropped)) == (5, 0, {})


def test_what_fails_is_tried_again_and_what_is_refused_is_not() -> None:
    messages: list[str] = []
    delivery = Scripted(RetryLater("busy"), OSError("odd"), None, Refused("bad", "invalid"), None)
    sink = QueuedSink("x", delivery, notify=messages.append)
    items = [window(n) for n in range(3)]
    for each in items:
        sink.take(each)
    wait_until(lambda: sink.counters().sent == 2)
    sink.close(DEADLINE_S)
    assert delivery.delivered == [items[0], items[2]]
    counters = sink.counters()
    assert (counters.retried, dict(counters.dropped)) == (2, {"invalid": 1})
    assert messages == [
        "The sink x could not deliver: busy",
        "The sink x could not deliver: OSError: odd",
        "The sink x delivers again.",
        "The sink x could not deliver: bad",
        "The sink x delivers again.",
    ]


def test_the_oldest_make_room_while_a_delivery_hangs() -> None:
    delivery = Scripted(is_open=False)
    sink = QueuedSink("x", delivery, QueueBounds(most_bytes=3 * size_of(window(0))))
    items = [window(n) for n in range(6)]
    sink.take(items[0])
    assert delivery.entered.wait(DEADLINE_S)
    for each in items[1:]:
        sink.take(each)  # returns although the thread hangs
    assert sink.counters().waiting == 3
    assert sink.counters().waiting_bytes == 3 * size_of(window(0))
    assert dict(sink.counters().dropped) == {"queue_full": 3}
    delivery.gate.set()
    sink.close(DEADLINE_S)
    # The first was pushed out while it was on its way: it counts as dropped only.
    assert delivery.delivered == [items[0], *items[3:]]
    assert (sink.counters().sent, dict(sink.counters().dropped)) == (3, {"queue_full": 3})


def test_what_waits_for_too_long_is_dropped() -> None:
    now = [0.0]
    delivery = Scripted(RetryLater("down", after_s=0.001), is_open=False)
    sink = QueuedSink("x", delivery, QueueBounds(most_age_s=60), clock=lambda: now[0])
    sink.take(window(0))
    assert delivery.entered.wait(DEADLINE_S)
    now[0] = 3600.0
    sink.take(window(1))
    delivery.gate.set()
    wait_until(lambda: sink.counters().retried == 1)
    now[0] += 1.0
    sink.take(window(2))
    wait_until(lambda: len(delivery.delivered) == 2)
    sink.close(DEADLINE_S)
    assert delivery.delivered == [window(1), window(2)]
    assert dict(sink.counters().dropped) == {"too_old": 1}


def test_a_sink_that_hangs_does_not_keep_the_agent_from_ending() -> None:
    delivery = Scripted(is_open=False)
    sink = QueuedSink("x", delivery)
    sink.take(window(0))
    sink.take(window(1))
    assert delivery.entered.wait(DEADLINE_S)
    sink.close(0.05)
    assert dict(sink.counters().dropped) == {"closed": 2}
    delivery.gate.set()


def test_a_delivery_gets_beats_while_there_is_nothing_to_do() -> None:
    delivery = Scripted()
    sink = QueuedSink("x", delivery)
    wait_until(lambda: delivery.beats >= 2)
    sink.close(DEADLINE_S)


def test_what_waits_is_tried_at_the_end_although_its_time_has_not_come() -> None:
    delivery = Scripted(RetryLater("busy", after_s=3600.0))
    sink = QueuedSink("x", delivery)
    sink.take(window(0))
    wait_until(lambda: sink.counters().retried == 1)
    sink.close(5.0)
    assert delivery.delivered == [window(0)]


def test_a_backend_is_not_asked_before_it_wants_to_be() -> None:
    now = [0.0]
    delivery = Scripted(RetryLater("busy", after_s=3600.0))
    sink = QueuedSink("x", delivery, QueueBounds(most_age_s=9999), clock=lambda: now[0])
    sink.take(window(0))
    wait_until(lambda: sink.counters().retried == 1)
    now[0] = 3599.0
    beats = delivery.beats
    wait_until(lambda: delivery.beats > beats)
    assert delivery.attempts == 1
    now[0] = 3601.0
    wait_until(lambda: sink.counters().sent == 1)
    sink.close(DEADLINE_S)


def test_attempts_are_further_and_further_apart_and_not_all_at_once() -> None:
    sink = QueuedSink("x", Scripted())
    sink.close(DEADLINE_S)
    for waited_s, least_s, most_s in ((2.0, 2.0, 4.0), (20.0, 20.0, 40.0), (9999.0, 30.0, 60.0)):
        pauses = [sink._back_off(waited_s) for _ in range(50)]
        assert least_s <= min(pauses) < max(pauses) <= most_s
    assert sink._back_off(0.0) > 0


def test_a_beat_that_fails_ends_no_sink_and_what_is_not_a_window_is_not_counted() -> None:
    class Broken(Scripted):
        def beat(self) -> None:
            super().beat()
            raise OSError("nobody thought of it")

    delivery = Broken(Refused("no"))
    sink = QueuedSink("x", delivery)
    wait_until(lambda: delivery.beats >= 2)
    sink.take(ProcessEnd(7, 9, 5.0))
    sink.take(window(0))
    sink.close(DEADLINE_S)
    assert delivery.delivered == [window(0)]
    assert sum(sink.counters().dropped.values()) == 0


def test_of_an_attempt_that_hangs_nothing_is_taken_over() -> None:
    delivery = Scripted(is_open=False)
    sink = QueuedSink("x", delivery)
    sink.take(window(0))
    assert delivery.entered.wait(DEADLINE_S)
    left = sink.hand_over(0.01)
    assert left.delivery is None
    assert [each.item for each in left.items] == [window(0)]
    delivery.gate.set()


def with_sinks(folder: Path, *names: str, is_ringed: bool = False) -> Settings:
    ring = RingSettings(enabled=is_ringed, path=str(folder / "ring"), keep_free=0)
    sinks = tuple(SinkSettings("folder", name, str(folder / name)) for name in names)
    return Settings(ring=ring, sinks=sinks)


def lines(folder: Path) -> list[float]:
    return [
        json.loads(splitline)["start_s"] for splitline in (folder / INDEX).read_text().splitlines()
    ]


def test_sinks_that_did_not_change_continue(tmp_path: Path) -> None:
    sinks = Sinks(pytest.fail)
    sinks.use(with_sinks(tmp_path, "a", "b"))
    first = sinks.all
    sinks.give(window(0))
    sinks.use(with_sinks(tmp_path, "c", "b"))
    assert [each.name for each in sinks.all] == ["c", "b"]
    assert sinks.all[1] is first[1]
    sinks.give(window(1))
    sinks.close()
    assert {name: lines(tmp_path / name) for name in "abc"} == {
        "a": [1000.0],
        "b": [1000.0, 1001.0],
        "c": [1001.0],
    }
    found = pprof.decode((tmp_path / "b/shop-7-1000000.block.pb.gz").read_bytes(), kind="block")
    assert len(found.samples) == len(PROFILE.samples)


def test_the_ring_takes_windows_and_what_was_not_watched(tmp_path: Path) -> None:
    sinks = Sinks(pytest.fail)
    sinks.use(with_sinks(tmp_path, is_ringed=True))
    for number in range(3):
        sinks.give(window(number))
    sinks.give(Unwatched(window(0).identity, 8, 9, "shop", 1000.0, 1001.0, "budget"))
    sinks.give(ProcessEnd(7, 9, 1004.0))
    wait_until(lambda: sinks.all[0].counters().waiting == 0)
    state = sinks.ring_state()
    assert state
    assert (state.written, dict(state.dropped)) == (3, {})
    sinks.close()
    assert sinks.ring_state() is None


def test_a_ring_that_can_not_be_opened_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    good = with_sinks(tmp_path, "a", is_ringed=True)
    bad = replace(good, ring=replace(good.ring, path=str(tmp_path / "file/ring")))
    sinks = Sinks(pytest.fail)
    sinks.use(good)
    with pytest.raises(RingError):
        sinks.use(bad)
    assert [each.name for each in sinks.all] == ["ring", "a"]
    sinks.give(window(0))
    wait_until(lambda: all(each.counters().sent == 1 for each in sinks.all))
    sinks.close()


def test_a_ring_that_is_switched_off_gets_nothing_more(tmp_path: Path) -> None:
    sinks = Sinks(pytest.fail)
    sinks.use(with_sinks(tmp_path, "a", is_ringed=True))
    assert sinks.ring_state()
    sinks.use(with_sinks(tmp_path, "a"))
    assert sinks.ring_state() is None
    sinks.close()


def test_a_window_that_comes_while_a_sink_is_replaced_is_not_lost(tmp_path: Path) -> None:
    """The sinks change in the very moment in which a window is given to them."""
    sinks = Sinks(pytest.fail)
    sinks.use(with_sinks(tmp_path, "a"))
    changing: list[threading.Thread] = []

    class Late(QueuedSink):
        def take(self, item: Item) -> None:
            changing.append(threading.Thread(target=sinks.use, args=(with_sinks(tmp_path, "b"),)))
            changing[0].start()
            changing[0].join(0.05)  # it waits for us
            super().take(item)

    (first,) = sinks.all
    first.__class__ = Late
    sinks.give(window(0))
    changing[0].join()
    sinks.close()
    assert lines(tmp_path / "a") == [1000.0]


@pytest.mark.parametrize("name", [INDEX, "shop-7-1000000.block.pb.part"])
def test_no_link_in_the_folder_of_a_sink_is_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "other").write_text("precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        FolderDelivery(str(tmp_path / "out")).deliver(window(0))
    assert (tmp_path / "other").read_text() == "precious"


def test_a_line_for_which_there_is_not_a_room_leaves_no_part_of_it(tmp_path: Path) -> None:
    delivery = FolderDelivery(str(tmp_path))
    unwatched = Unwatched(window(0).identity, 8, 9, "shop", 1000.0, 1001.0, "budget")
    delivery.deliver(unwatched)
    size = (tmp_path / INDEX).stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            delivery.deliver(unwatched)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    delivery.deliver(replace(unwatched, start_s=1001.0))
    assert lines(tmp_path) == [1000.0, 1001.0]
    assert stat.S_IMODE((tmp_path / INDEX).stat().st_mode) == 0o600
