"""Sinks of backends: what is tried again and what never, and nothing is delivered twice."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep, time

import pytest

from ebpfprof.agent.settings import RingSettings, Settings
from ebpfprof.agent.sinks import queued
from ebpfprof.agent.sinks.http_client import HttpClient
from ebpfprof.agent.sinks.opening import Sinks
from ebpfprof.agent.sinks.otlp import OtlpBackend
from ebpfprof.agent.sinks.parca import ParcaBackend
from ebpfprof.agent.sinks.pyroscope import PyroscopeBackend
from ebpfprof.agent.sinks.queued import QueuedSink
from ebpfprof.agent.sinks.remote import Backend, RemoteDelivery
from ebpfprof.agent.sinks.ring_backlog import RingBacklog
from ebpfprof.agent.sinks.sink import SinkCounters
from ebpfprof.agent.sinks.waiting import (
    NOTE_BYTES,
    InRing,
    QueueBounds,
    WaitingItems,
    size_of,
)
from ebpfprof.export import pprof
from ebpfprof.export.otlp.schema import message_class
from ebpfprof.profile.model import Profile, ValueType
from ebpfprof.profile.service import ProcessEnd, ServiceWindow
from ebpfprof.ring.writer import Ring
from tests.backends.ports import free_port
from tests.backends.scripted_server import (
    DROP,
    GARBAGE,
    HALF,
    HANG,
    Received,
    ScriptedServer,
    Step,
    answer,
)
from tests.backends.windows import made_up, sink, window_of
from tests.targets_run import DEADLINE_S

BACKENDS: dict[str, Callable[[], Backend]] = {
    "otlp": OtlpBackend,
    "pyroscope": PyroscopeBackend,
    "parca": ParcaBackend,
}
YES = answer(200, b"{}")
OTLP_YES = answer(200)
START_S = 1_790_000_000.0


@pytest.fixture(autouse=True)
def _retries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queued, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(queued, "BEAT_S", 0.01)


def wait_until(is_so: Callable[[], bool]) -> None:
    until = monotonic() + DEADLINE_S
    while not is_so():
        assert monotonic() < until
        sleep(0.001)


def opened(kind: str, url: str, said: list[str] | None = None, **more: object) -> QueuedSink:
    """A sink as the agent opens it; an answer may take 0.3 s."""
    backend = BACKENDS[kind]()
    settings = sink(kind, url, timeout=0.3)
    delivery = RemoteDelivery(HttpClient(settings, backend.path), backend)
    tell = (said if said is not None else []).append
    return QueuedSink(kind, delivery, tell=tell, only_windows=True, **more)  # type: ignore[arg-type]


def outcome(kind: str, window: ServiceWindow, *steps: Step) -> tuple[SinkCounters, list[Received]]:
    """What becomes of a window, and the requests that were made of it; then comes "yes"."""
    with ScriptedServer(*steps, then=OTLP_YES if kind == "otlp" else YES) as server:
        ours = opened(kind, server.url)
        ours.take(window)
        wait_until(lambda: ours.counters().waiting == 0)
        ours.close(DEADLINE_S)
        return ours.counters(), server.received


PARTIAL = message_class("ExportProfilesServiceResponse")()
PARTIAL.partial_success.rejected_profiles = 1
PARTIAL.partial_success.error_message = b"no room"
WARNING = message_class("ExportProfilesServiceResponse")()
WARNING.partial_success.error_message = b"soon no more"


@pytest.mark.parametrize(
    ("kind", "step", "retried", "dropped"),
    [
        *(("otlp", answer(status), 1, {}) for status in (401, 403, 408, 429, 502, 503, 504)),
        *(("otlp", answer(status), 0, {"refused": 1}) for status in (400, 404, 413, 415)),
        *(("otlp", answer(status), 0, {"server_error": 1}) for status in (500, 501, 505)),
        ("otlp", answer(301, location="http://x"), 0, {"moved": 1}),
        ("otlp", answer(200, PARTIAL.SerializeToString()), 0, {"partly_refused": 1}),
        ("otlp", answer(200, WARNING.SerializeToString()), 0, {}),
        ("otlp", answer(202), 0, {}),
        ("otlp", answer(200, b"<html>"), 0, {"bad_answer": 1}),
        ("pyroscope", answer(200, b"<html>"), 0, {"bad_answer": 1}),
        ("pyroscope", answer(200, b"[1]"), 0, {"bad_answer": 1}),
        ("pyroscope", answer(500), 1, {}),
        ("pyroscope", answer(429), 1, {}),
        ("pyroscope", answer(400, b'{"code":"invalid_argument"}'), 0, {"refused": 1}),
        ("parca", answer(200, b"["), 0, {"bad_answer": 1}),
        ("parca", answer(503), 1, {}),
        *(("otlp", step, 1, {}) for step in (HANG, HALF, DROP, GARBAGE)),
    ],
)
def test_each_answer_has_its_outcome(
    kind: str, step: Step, retried: int, dropped: dict[str, int]
) -> None:
    counters, received = outcome(
        kind, window_of(START_S, {"block": made_up("block", START_S)}), step
    )
    assert (counters.retried, dict(counters.dropped)) == (retried, dropped)
    assert counters.sent == 1 - sum(dropped.values())
    assert len(received) == 1 + retried
    assert len({each.body for each in received}) == 1


def test_a_request_that_only_gets_500_does_not_block_the_others() -> None:
    good = window_of(START_S + 60)
    with ScriptedServer(*[answer(500, b"oh")] * 5, then=YES) as server:
        said: list[str] = []
        ours = opened("pyroscope", server.url, said)
        ours.take(window_of(START_S, {"block": made_up("block", START_S)}))
        ours.take(good)
        wait_until(lambda: ours.counters().waiting == 0)
        ours.close(DEADLINE_S)
        counters = ours.counters()
    assert (counters.sent, counters.retried) == (1, 4)
    assert dict(counters.dropped) == {"server_error": 1}
    assert said == [
        "The sink pyroscope could not deliver: it answers 500: oh",
        "The sink pyroscope delivers again.",
    ]


def test_what_was_delivered_of_a_window_is_not_sent_again() -> None:
    kinds = ("block", "mutex", "cpu", "goroutine")
    window = window_of(START_S, {kind: made_up(kind, START_S) for kind in kinds})
    steps = (YES, answer(503), HANG, YES, answer(400), answer(429))
    counters, received = outcome("pyroscope", window, *steps)
    bodies = [each.body for each in received]
    assert [bodies.index(each) for each in bodies] == [0, 1, 1, 1, 4, 5, 5]
    # One of its four profiles was refused: the window counts as that.
    assert (counters.sent, counters.retried) == (0, 3)
    assert dict(counters.dropped) == {"refused": 1}


def test_only_profiles_that_can_be_added_up_are_sent() -> None:
    kinds = ("heap", "allocs", "goroutine", "wall", "mutex")
    profiles = {kind: made_up(kind, START_S) for kind in kinds}
    profiles["mutex"] = replace(profiles["mutex"], samples=())
    counters, received = outcome("otlp", window_of(START_S, profiles))
    assert counters.sent == 1
    found = {}
    for each in received:
        request = message_class("ExportProfilesServiceRequest").FromString(
            gzip.decompress(each.body)
        )
        strings = request.dictionary.string_table
        scope = request.resource_profiles[0].scope_profiles[0]
        found[scope.scope.name.decode()] = [
            (strings[p.sample_type.type_strindex].decode(), p.time_unix_nano, p.duration_nano)
            for p in scope.profiles
        ]
    minute_ns, begun_ns = 60 * 10**9, round(START_S * 1e9)
    moment = (begun_ns + minute_ns, 0)
    assert found == {
        "memory": [("inuse_objects", *moment), ("inuse_space", *moment)],
        "goroutine": [("goroutine", *moment)],
        "wall": [("samples", begun_ns, minute_ns), ("wall", begun_ns, minute_ns)],
    }
    assert outcome("otlp", window_of(START_S, {"mutex": profiles["mutex"]}))[1] == []


def test_other_items_than_windows_do_not_wait() -> None:
    ours = opened("otlp", f"http://127.0.0.1:{free_port()}")
    ours.take(ProcessEnd(1, 2, 3.0))
    assert ours.counters().waiting == 0
    ours.close(DEADLINE_S)


def test_what_could_harm_a_backend_is_never_sent() -> None:
    bad = made_up("block", START_S)
    profiles = {
        "block": replace(bad, period_type=ValueType("", "")),
        "mutex": replace(bad, kind="mutex", sample_types=bad.sample_types[:1]),
        "cpu": made_up("cpu", START_S),
    }
    for kind in BACKENDS:
        counters, received = outcome(kind, window_of(START_S, profiles))
        assert dict(counters.dropped) == {"invalid": 1}
        assert len(received) == 1


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
        for each in windows:
            assert self.ring.write(each)
            self.sink.take(each)
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
        "The sink otlp could not deliver: no connection: Connection refused",
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
    assert any("had no room for it" in each for each in hour.said)


def test_a_large_profile_is_sent_in_parts_that_add_up() -> None:
    profile = made_up("block", START_S, stacks=32_200)
    with ScriptedServer(then=YES) as server:
        ours = opened("pyroscope", server.url)
        ours.take(window_of(START_S, {"block": profile}))
        wait_until(lambda: ours.counters().waiting == 0)
        ours.close(DEADLINE_S)
        assert ours.counters().sent == 1
        parts = [pushed(each) for each in server.received]
    assert all(len(part.samples) <= 16_000 for part, _ in parts)
    assert len({identity for _, identity in parts}) == len(parts) > 1
    found = Counter({(s.locations, s.values) for part, _ in parts for s in part.samples})
    assert found == Counter((s.locations, s.values) for s in profile.samples)


def pushed(request: Received) -> tuple[Profile, str]:
    """The profile in a request to Pyroscope, and its id."""
    (series,) = json.loads(request.body)["series"]
    (each,) = series["samples"]
    return pprof.decode(b64decode(each["rawProfile"]), kind="block"), each["ID"]


def test_a_window_that_the_ring_has_not_written_yet_is_waited_for(tmp_path: Path) -> None:
    now_s = time()
    windows = [window_of(now_s - 60, pid=n + 1) for n in range(4)]
    path = tmp_path / "ring"
    with (
        ScriptedServer(HANG, then=OTLP_YES) as server,
        Ring(path, keep_free_bytes=0) as ring,
    ):
        bounds = QueueBounds(2 * size_of(windows[0]))
        ours = opened("otlp", server.url, bounds=bounds, backlog=RingBacklog(lambda: path))
        for each in windows:
            ours.take(each)
        wait_until(lambda: ours.counters().retried > 2)
        for each in windows:
            assert ring.write(each)
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
        for each in windows:
            assert ring.write(each)
            ours.take(each)
        with ScriptedServer(then=OTLP_YES, port=port):
            now_s[0] = 61.0
            wait_until(lambda: ours.counters().waiting == 0)
            ours.close(DEADLINE_S)
    assert (ours.counters().sent, dict(ours.counters().dropped)) == (4, {})


def test_more_notes_than_there_is_room_for_push_out_the_oldest() -> None:
    dropped: Counter[str] = Counter()
    items = WaitingItems(QueueBounds(10 * NOTE_BYTES, 7200.0), dropped, lambda: True)
    windows = minutes(20)
    for each in windows:
        items.add(each, 0.0)
    assert dropped == {"queue_full": 20 - len(items)}
    assert 10 <= len(items) <= 11
    assert items.bytes <= 10 * NOTE_BYTES + size_of(windows[0])
    oldest = items.oldest()
    assert oldest
    assert isinstance(oldest.item, InRing)
    assert oldest.item.window.pid == windows[-len(items)].pid


def test_what_is_read_back_goes_on_where_it_stopped(tmp_path: Path) -> None:
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
        for each in windows:
            assert ring.write(each)
        ours.take(windows[0])
        wait_until(lambda: ours.counters().retried == 1)  # its second profile has to wait
        for each in windows[1:]:
            ours.take(each)  # now the first one waits in the ring
        now_s[0] = 61.0
        wait_until(lambda: ours.counters().waiting == 0)
        ours.close(DEADLINE_S)
    bodies = [each.body for each in server.received]
    assert [bodies.index(each) for each in bodies] == [0, 1, 1, 3, 4, 5, 6]


def test_a_mended_address_costs_no_window(tmp_path: Path) -> None:
    ring = RingSettings(path=str(tmp_path / "ring"), keep_free=0, max_age=1e9)
    wrong = sink("otlp", f"http://127.0.0.1:{free_port()}")
    said: list[str] = []
    sinks = Sinks(said.append)
    windows = minutes(5)
    with ScriptedServer(then=OTLP_YES) as server:
        sinks.use(Settings(ring=ring, sinks=(wrong,)))
        for each in windows:
            sinks.give(each)
        wait_until(lambda: "no connection" in "".join(said))
        sinks.use(Settings(ring=ring, sinks=(replace(wrong, url=server.url),)))
        server.await_requests(2 * len(windows))
        wait_until(lambda: all(each.counters().waiting == 0 for each in sinks.all))
        counters = sinks.all[1].counters()
        sinks.close()
        assert (counters.sent, dict(counters.dropped)) == (5, {})
        assert len(server.received) == 10
