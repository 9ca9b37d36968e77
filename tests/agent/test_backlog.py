"""What a backend could not take waits in the local ring, and is read back from there."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from ebpfprof.agent.settings import RingSettings, Settings
from ebpfprof.agent.sinks.opening import Sinks
from ebpfprof.agent.sinks.queued import QueuedSink
from ebpfprof.agent.sinks.ring_backlog import RingBacklog
from ebpfprof.agent.sinks.waiting import NOTE_BYTES, InRing, QueueBounds, WaitingItems, size_of
from ebpfprof.export.otlp.schema import message_class
from ebpfprof.profile.service import ServiceWindow
from ebpfprof.ring.writer import Ring
from tests.agent.test_remote_sinks import OTLP_YES, START_S, opened, outcome
from tests.agent.waiting import wait_until
from tests.backends.ports import free_port
from tests.backends.scripted_server import HANG, Received, ScriptedServer, answer
from tests.backends.windows import sink, window_of
from tests.targets_run import DEADLINE_S

pytestmark = pytest.mark.usefixtures("retries_soon")


def slow_to_catch_up(
    first: ServiceWindow, path: Path, port: int, now_s: Sequence[float]
) -> QueuedSink:
    """A sink with room for one window, the clock of which is `now_s[0]`.

    What takes a millisecond to catch up is followed by a pause of 1,000 s.
    """
    return opened(
        "otlp",
        f"http://127.0.0.1:{port}",
        bounds=QueueBounds(size_of(first), 1e9),
        backlog=RingBacklog(lambda: path),
        clock=lambda: now_s[0],
        catch_up=1e-6,
    )


def minutes(count: int) -> list[ServiceWindow]:
    return [window_of(START_S + 60 * n, pid=100 + n) for n in range(count)]


class Hour:
    """A clock that the test moves, and bodies that a backend got, in a ring that has them all."""

    def __init__(self, folder: Path, windows: list[ServiceWindow], port: int) -> None:
        self.now_s = 0.0
        self.said: list[str] = []
        self.ring = Ring(folder / "ring", max_age_s=1e9, keep_free_bytes=0)
        bounds = QueueBounds(3 * size_of(windows[0]) + 1_000 * len(windows), 7200.0)
        self.sink = opened(
            "otlp",
            f"http://127.0.0.1:{port}",
            self.said,
            bounds=bounds,
            clock=lambda: self.now_s,
            backlog=RingBacklog(lambda: folder / "ring"),
        )
        for window in windows:
            assert self.ring.write(window)
            self.sink.take(window)
            self.now_s += 60

    def close(self) -> None:
        self.sink.close(DEADLINE_S)
        self.ring.close()


def test_a_backend_that_is_down_for_an_hour_gets_all_in_order(tmp_path: Path) -> None:
    windows, port = minutes(60), free_port()
    hour = Hour(tmp_path, windows, port)
    counters = hour.sink.counters()
    assert counters.waiting == 60
    assert counters.waiting_bytes <= 3 * size_of(windows[0]) + 60_000
    with ScriptedServer(then=OTLP_YES, port=port) as server:
        hour.now_s += 61  # the longest wait between two attempts
        wait_until(lambda: hour.sink.counters().waiting == 0)
        hour.close()
        received = [each.body for each in server.received]
    counters = hour.sink.counters()
    assert (counters.sent, dict(counters.dropped), counters.waiting_bytes) == (60, {}, 0)
    # The same bytes as if they had been delivered at once.
    at_once = [each.body for w in windows for each in outcome("otlp", w)[1]]
    assert received == at_once
    assert hour.said == [
        "The sink otlp could not deliver: cannot connect: Connection refused",
        "The sink otlp delivers again.",
    ]


def test_what_the_ring_has_no_room_for_is_lost_and_counted(tmp_path: Path) -> None:
    windows, port = minutes(10), free_port()
    hour = Hour(tmp_path, windows, port)
    for path in sorted((tmp_path / "ring").rglob("*.pb.gz"))[4:7]:
        path.unlink()  # a window and a half
    with ScriptedServer(then=OTLP_YES, port=port) as server:
        hour.now_s += 61
        wait_until(lambda: hour.sink.counters().waiting == 0)
        hour.close()
        assert len(server.received) == 17
    counters = hour.sink.counters()
    assert (counters.sent, dict(counters.dropped)) == (9, {"not_in_ring": 1})
    assert any("has removed it" in each for each in hour.said)


def test_a_window_that_the_ring_has_not_written_yet_is_waited_for(tmp_path: Path) -> None:
    now_s = time()
    windows = [window_of(now_s - 60, pid=n + 1) for n in range(4)]
    path = tmp_path / "ring"
    with (
        ScriptedServer(HANG, then=OTLP_YES) as server,
        Ring(path, keep_free_bytes=0) as ring,
    ):
        bounds = QueueBounds(2 * size_of(windows[0]))
        backlog = RingBacklog(lambda: path)
        ours = opened("otlp", server.url, timeout_s=1.0, bounds=bounds, backlog=backlog)
        for window in windows:
            ours.take(window)
        wait_until(lambda: ours.counters().retried > 2)
        for window in windows:
            assert ring.write(window)
        wait_until(lambda: ours.counters().waiting == 0)
        ours.close(DEADLINE_S)
        assert (ours.counters().sent, dict(ours.counters().dropped)) == (4, {})


def test_windows_that_are_larger_than_the_queue_push_out_no_note(tmp_path: Path) -> None:
    windows = minutes(4)
    path = tmp_path / "ring"
    now_s = [0.0]
    port = free_port()
    with Ring(path, max_age_s=1e9, keep_free_bytes=0) as ring:
        ours = opened(
            "otlp",
            f"http://127.0.0.1:{port}",
            bounds=QueueBounds(size_of(windows[0]) - 1, 7200.0),
            backlog=RingBacklog(lambda: path),
            clock=lambda: now_s[0],
        )
        for window in windows:
            assert ring.write(window)
            ours.take(window)
        with ScriptedServer(then=OTLP_YES, port=port):
            now_s[0] = 61.0
            wait_until(lambda: ours.counters().waiting == 0)
            ours.close(DEADLINE_S)
    assert (ours.counters().sent, dict(ours.counters().dropped)) == (4, {})


def test_more_notes_than_there_is_room_for_push_out_the_oldest() -> None:
    dropped: Counter[str] = Counter()
    items = WaitingItems(QueueBounds(10 * NOTE_BYTES, 7200.0), dropped, lambda: True)
    windows = minutes(20)
    for window in windows:
        items.add(window, 0.0)
    assert dropped == {"queue_full": 20 - len(items)}
    assert 10 <= len(items) <= 11
    assert items.bytes <= 10 * NOTE_BYTES + size_of(windows[0])
    oldest = items.due(from_ring=True)
    assert oldest
    assert isinstance(oldest.item, InRing)
    assert oldest.item.window.pid == windows[-len(items)].pid


def test_to_catch_up_holds_up_no_new_window(tmp_path: Path) -> None:
    windows, port = minutes(4), free_port()
    path = tmp_path / "ring"
    now_s = [0.0]
    with Ring(path, max_age_s=1e9, keep_free_bytes=0) as ring:
        ours = slow_to_catch_up(windows[0], path, port, now_s)
        for window in windows:
            assert ring.write(window)
            ours.take(window)
        with ScriptedServer(then=OTLP_YES, port=port) as server:
            for moment, left in ((61.0, 2), (1e6, 1), (2e6, 0)):
                now_s[0] = moment
                wait_until(lambda left=left: ours.counters().waiting == left)  # type: ignore[misc]  # mypy and defaults of a lambda
            ours.close(DEADLINE_S)
            begun = [begun_of(each) for each in server.received[::2]]
    # The one that failed first, the newest, then what waited in the ring.
    assert begun == [windows[at].start_s for at in (0, 3, 1, 2)]
    assert ours.counters().sent == 4


def test_a_window_of_which_a_part_is_delivered_comes_first(tmp_path: Path) -> None:
    windows, port = minutes(3), free_port()
    path = tmp_path / "ring"
    now_s = [0.0]
    with Ring(path, max_age_s=1e9, keep_free_bytes=0) as ring:
        ours = slow_to_catch_up(windows[0], path, port, now_s)
        for window in windows:
            assert ring.write(window)
            ours.take(window)
        wait_until(lambda: ours.counters().retried == 1)
        steps = (OTLP_YES, OTLP_YES, OTLP_YES, answer(503))
        with ScriptedServer(*steps, then=OTLP_YES, port=port) as server:
            now_s[0] = 61.0  # the first one goes, and a part of the newest
            wait_until(lambda: ours.counters().retried == 2)
            now_s[0] = 1e6  # now the second one's turn would come
            wait_until(lambda: ours.counters().waiting == 0)
            ours.close(DEADLINE_S)
            received = server.received
    begun = [begun_of(each) for each in received]
    assert begun == [windows[at].start_s for at in (0, 0, 2, 2, 2, 1, 1)]
    assert received[3].body == received[4].body != received[2].body


def begun_of(request: Received) -> float:
    """When a profile in a request of OTLP begins."""
    message = message_class("ExportProfilesServiceRequest").FromString(
        gzip.decompress(request.body)
    )
    scope = message.resource_profiles[0].scope_profiles[0]
    return float(scope.profiles[0].time_unix_nano / 1e9)


def test_what_is_read_back_continues_where_it_stopped(tmp_path: Path) -> None:
    windows = minutes(3)
    path = tmp_path / "ring"
    with (
        ScriptedServer(OTLP_YES, answer(503), then=OTLP_YES) as server,
        Ring(path, max_age_s=1e9, keep_free_bytes=0) as ring,
    ):
        now_s = [0.0]
        ours = opened(
            "otlp",
            server.url,
            bounds=QueueBounds(2 * size_of(windows[0]), 7200.0),
            backlog=RingBacklog(lambda: path),
            clock=lambda: now_s[0],
        )
        for window in windows:
            assert ring.write(window)
        ours.take(windows[0])
        wait_until(lambda: ours.counters().retried == 1)  # its second profile has to wait
        for window in windows[1:]:
            ours.take(window)  # now the first one waits in the ring
        now_s[0] = 61.0
        wait_until(lambda: ours.counters().waiting == 0)
        ours.close(DEADLINE_S)
    bodies = [each.body for each in server.received]
    assert [bodies.index(body) for body in bodies] == [0, 1, 1, 3, 4, 5, 6]


def test_a_corrected_address_costs_no_window(tmp_path: Path) -> None:
    ring = RingSettings(path=str(tmp_path / "ring"), keep_free=0, max_age=1e9)
    wrong = sink("otlp", f"http://127.0.0.1:{free_port()}")
    messages: list[str] = []
    sinks = Sinks(messages.append)
    windows = minutes(5)
    with ScriptedServer(then=OTLP_YES) as server:
        sinks.use(Settings(ring=ring, sinks=(wrong,)))
        for window in windows:
            sinks.give(window)
        wait_until(lambda: "cannot connect" in "".join(messages))
        sinks.use(Settings(ring=ring, sinks=(replace(wrong, url=server.url),)))
        server.await_requests(2 * len(windows))
        wait_until(lambda: all(each.counters().waiting == 0 for each in sinks.all))
        counters = sinks.all[1].counters()
        sinks.close()
        assert (counters.sent, dict(counters.dropped)) == (5, {})
        assert len(server.received) == 10


def test_what_was_delivered_of_a_window_is_not_sent_again_by_the_next_sink(tmp_path: Path) -> None:
    ring = RingSettings(path=str(tmp_path / "ring"), keep_free=0, max_age=1e9)
    sinks = Sinks(lambda _: None)
    windows = minutes(2)
    steps = (OTLP_YES, answer(503, retry_after="3600"))
    with ScriptedServer(*steps, then=OTLP_YES) as server:
        first = sink("otlp", server.url)
        sinks.use(Settings(ring=ring, sinks=(first,)))
        for window in windows:
            sinks.give(window)
        wait_until(lambda: sinks.all[1].counters().retried == 1)
        sinks.use(Settings(ring=ring, sinks=(replace(first, timeout=3.0),)))
        wait_until(lambda: all(each.counters().waiting == 0 for each in sinks.all))
        assert sinks.all[1].counters().sent == 2
        sinks.close()
        bodies = [each.body for each in server.received]
    assert [bodies.index(body) for body in bodies] == [0, 1, 1, 3, 4]
