"""What Pyroscope gets, by the rules that a real one applied, in a fake that refuses more."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from ebpfprof.agent.sinks.http_client import HttpClient
from ebpfprof.agent.sinks.pyroscope import PyroscopeBackend
from ebpfprof.agent.sinks.remote import RemoteDelivery
from ebpfprof.agent.sinks.sink import Refused
from ebpfprof.profile.model import Label, Profile
from ebpfprof.profile.service import ServiceIdentity, ServiceWindow
from tests.backends.scripted_server import Received, ScriptedServer
from tests.backends.strict_pyroscope import PATH, StrictPyroscope
from tests.backends.windows import made_up, sink, window_of

NOW_S = 1_790_000_000.0


def deliver(window: ServiceWindow, now_s: float = NOW_S + 60) -> StrictPyroscope:
    """Deliver a window to a strict Pyroscope at that time. Raises Refused."""
    pyroscope = StrictPyroscope(now=lambda: now_s)
    with ScriptedServer(then=pyroscope) as server:
        delivery = RemoteDelivery(
            HttpClient(sink("pyroscope", server.url), PyroscopeBackend.path), PyroscopeBackend()
        )
        try:
            delivery.deliver(window)
        finally:
            delivery.close()
    return pyroscope


def content(profile: Profile) -> Counter[tuple[object, ...]]:
    return Counter((sample.locations, sample.values, sample.labels) for sample in profile.samples)


def test_each_kind_arrives_under_the_name_that_the_page_knows() -> None:
    kinds = ("block", "mutex", "cpu", "goroutine", "wall", "heap")
    profiles = {kind: made_up(kind, NOW_S, stacks=5) for kind in kinds}
    found = deliver(window_of(NOW_S, profiles))
    assert found.refused == []
    by_name = {each.labels["__name__"]: each for each in found.pushed}
    names = dict(
        zip(kinds, ("block", "mutex", "process_cpu", "goroutine", "wall", "memory"), strict=True)
    )
    assert set(by_name) == set(names.values())
    for kind in set(kinds) - {"heap"}:
        assert content(by_name[names[kind]].profile) == content(profiles[kind])
    assert by_name["block"].labels == {
        "__name__": "block",
        "service_name": "shop",
        "namespace": "prod",
        "version": "v7",
        "node": "n1",
        "pod": "shop-5d8f",
        "container": "app",
        "team_name": "till",
    }


def test_odd_names_come_through() -> None:
    labels = {f"l{n}": "v" for n in range(23)} | {"größe-µ": "ß" * 2000}
    identity = ServiceIdentity("größe 'shop' {a=b}", labels=labels)
    window = replace(window_of(NOW_S), identity=identity)
    found = deliver(window)
    assert found.refused == []
    assert found.pushed[0].labels["service_name"] == identity.service
    assert found.pushed[0].labels["gr__e__"] == "ß" * 1024


def test_addresses_of_locks_make_no_series() -> None:
    def lock(number: int) -> tuple[Label, ...]:
        return (Label("lock", "main.mu"), Label("lock_address", f"{number:#x}"))

    profile = made_up("mutex", NOW_S)
    first = profile.samples[0]
    samples = tuple(replace(first, labels=lock(number)) for number in (1, 2, 3))
    found = deliver(window_of(NOW_S, {"mutex": replace(profile, samples=samples)}))
    (sample,) = found.pushed[0].profile.samples
    assert sample.labels == (Label("lock", "main.mu"),)
    assert sample.values == tuple(3 * value for value in first.values)


def test_what_is_too_old_for_it_is_refused_for_good() -> None:
    assert deliver(window_of(NOW_S), NOW_S + 3590).refused == []
    with pytest.raises(Refused, match=r"^the status is 400: .*Its time is -3610 s from now"):
        deliver(window_of(NOW_S), NOW_S + 3610)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"labels": []}, "invalid metric name"),
        ({"labels": [{"name": "__name__", "value": "block"}]}, "service name is not provided"),
        ({"labels": [{"name": "a", "value": "b"}] * 2}, "duplicate label name"),
        ({"samples": [{"ID": "7", "rawProfile": ""}]}, "the id '7'"),
    ],
)
def test_the_fake_refuses_what_a_real_one_refuses(change: dict[str, object], why: str) -> None:
    good: dict[str, object] = {
        "labels": [
            {"name": "__name__", "value": "block"},
            {"name": "service_name", "value": "shop"},
        ],
        "samples": [],
    }
    pyroscope = StrictPyroscope()
    headers = {"content-type": "application/json"}
    for series in (good, good | change):
        body = json.dumps({"series": [series]}).encode()
        output = pyroscope(Received("POST", PATH, headers, body, 0))
    assert b" 400 " in output
    (refused,) = pyroscope.refused
    assert why in refused
