"""Sinks of backends: what is tried again and what never, and nothing is delivered twice."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from ebpfprof.agent.sinks.http_client import HttpClient
from ebpfprof.agent.sinks.otlp import OtlpBackend
from ebpfprof.agent.sinks.parca import ParcaBackend
from ebpfprof.agent.sinks.pyroscope import PyroscopeBackend
from ebpfprof.agent.sinks.queued import QueuedSink
from ebpfprof.agent.sinks.remote import Backend, RemoteDelivery
from ebpfprof.agent.sinks.sink import RetryLater, SinkCounters
from ebpfprof.export import pprof
from ebpfprof.export.otlp.schema import message_class
from ebpfprof.profile.model import Profile, ValueType
from ebpfprof.profile.service import ProcessEnd, ServiceWindow
from tests import profilerules
from tests.agent.waiting import wait_until
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


pytestmark = pytest.mark.usefixtures("retries_soon")


def opened(
    kind: str | Backend,
    url: str,
    said: list[str] | None = None,
    timeout_s: float = 30.0,
    **more: object,
) -> QueuedSink:
    """A sink as the agent opens it."""
    backend = BACKENDS[kind]() if isinstance(kind, str) else kind
    name = kind if isinstance(kind, str) else "made up"
    settings = sink(name, url, timeout=timeout_s)
    delivery = RemoteDelivery(HttpClient(settings, backend.path), backend)
    notify = (said if said is not None else []).append
    return QueuedSink(name, delivery, notify=notify, takes=(ServiceWindow,), **more)  # type: ignore[arg-type]  # mypy can't know that `more` has fields of QueuedSink


def outcome(
    kind: str | Backend, window: ServiceWindow, *steps: Step
) -> tuple[SinkCounters, list[Received]]:
    """What becomes of a window, and the requests that were made of it; then comes "yes"."""
    with ScriptedServer(*steps, then=OTLP_YES if kind == "otlp" else YES) as server:
        timeout_s = 1.0 if HANG in steps or HALF in steps else 30.0
        ours = opened(kind, server.url, timeout_s=timeout_s)
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
        messages: list[str] = []
        ours = opened("pyroscope", server.url, messages)
        ours.take(window_of(START_S, {"block": made_up("block", START_S)}))
        ours.take(good)
        wait_until(lambda: ours.counters().waiting == 0)
        ours.close(DEADLINE_S)
        counters = ours.counters()
    assert (counters.sent, counters.retried) == (1, 4)
    assert dict(counters.dropped) == {"server_error": 1}
    assert messages == [
        "The sink pyroscope could not deliver: the status is 500: oh",
        "The sink pyroscope delivers again.",
    ]


def test_each_profile_has_its_own_attempts() -> None:
    steps = [*[answer(500)] * 4, YES] * 2
    counters, received = outcome("pyroscope", window_of(START_S), *steps)
    assert (counters.sent, counters.retried, len(received)) == (1, 8, 10)


def test_of_a_window_that_was_dropped_nothing_is_sent_any_more() -> None:
    """Two processes have windows of the same time; the rest of the first one is given up."""
    with ScriptedServer(YES, answer(429, retry_after="7"), then=YES) as server:
        backend = PyroscopeBackend()
        delivery = RemoteDelivery(HttpClient(sink("pyroscope", server.url), backend.path), backend)
        with pytest.raises(RetryLater) as caught:
            delivery.deliver(window_of(START_S))
        assert caught.value.after_s == 7.0
        delivery.deliver(window_of(START_S, pid=4712))
        delivery.close()
        bodies = [each.body for each in server.received]
    assert len(bodies) == len({*bodies}) == 4


class NarrowPyroscope(PyroscopeBackend):
    """A Pyroscope that takes almost nothing at once."""

    most_samples = 0
    most_bytes = 10


class SmallPyroscope(PyroscopeBackend):
    """A Pyroscope that takes little at once."""

    most_samples = 100
    most_bytes = 2000


def test_a_sample_that_is_too_large_alone_is_sent_as_it_is() -> None:
    counters, received = outcome(
        NarrowPyroscope(), window_of(START_S, {"cpu": made_up("cpu", START_S)})
    )
    assert (counters.sent, len(received)) == (1, 2)


def test_what_was_delivered_of_a_window_is_not_sent_again() -> None:
    kinds = ("block", "mutex", "cpu", "goroutine")
    window = window_of(START_S, {kind: made_up(kind, START_S) for kind in kinds})
    steps = (YES, answer(503), HANG, YES, answer(400), answer(429))
    counters, received = outcome("pyroscope", window, *steps)
    bodies = [each.body for each in received]
    assert [bodies.index(body) for body in bodies] == [0, 1, 1, 1, 4, 5, 5]
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


def test_a_large_profile_is_sent_in_parts_that_add_up() -> None:
    assert PyroscopeBackend.most_samples == profilerules.PYROSCOPE_MAX_SAMPLES
    assert PyroscopeBackend.most_bytes == profilerules.PYROSCOPE_MAX_BYTES
    profile = made_up("block", START_S, stacks=210)
    with ScriptedServer(then=YES) as server:
        ours = opened(SmallPyroscope(), server.url)
        ours.take(window_of(START_S, {"block": profile}))
        wait_until(lambda: ours.counters().waiting == 0)
        ours.close(DEADLINE_S)
        assert ours.counters().sent == 1
        parts = [pushed(each) for each in server.received]
    assert all(len(part.samples) <= 100 for part, _ in parts)
    assert all(len(gzip.decompress(pprof.encode(part))) <= 2000 for part, _ in parts)
    assert len({identity for _, identity in parts}) == len(parts) > 4
    found = Counter({(s.locations, s.values) for part, _ in parts for s in part.samples})
    assert found == Counter((s.locations, s.values) for s in profile.samples)


def pushed(request: Received) -> tuple[Profile, str]:
    """The profile in a request to Pyroscope, and its id."""
    (series,) = json.loads(request.body)["series"]
    (each,) = series["samples"]
    return pprof.decode(b64decode(each["rawProfile"]), kind="block"), each["ID"]
