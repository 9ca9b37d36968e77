"""A real Parca, which takes minutes to build, has each sample, and nothing that we send ends it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from ebpfprof.agent.sinks.backends import remote_delivery
from ebpfprof.agent.sinks.sink import Delivery, Refused, RetryLater
from ebpfprof.profile.model import Label, Profile, ValueType
from ebpfprof.profile.service import ServiceIdentity
from ebpfprof.profilers.registry import kind_named
from tests.agent.running import RunningAgent, settings
from tests.agent.test_agent import hands, started
from tests.agent.test_backends import SERIES, files, table
from tests.backends.parca import Parca
from tests.backends.windows import made_up, sink, window_of
from tests.kernel.live_counts import HANDS

pytestmark = pytest.mark.full
KINDS = ("block", "mutex", "cpu", "goroutine", "wall", "heap")


def delivery_to(parca: Parca) -> Delivery:
    return remote_delivery(sink("parca", parca.url, timeout=30.0))


def shown(profile: Profile, place: int) -> Counter[object]:
    """A value of each stack by its functions and lines; merged profiles have no labels there."""
    found: Counter[object] = Counter()
    for sample in profile.samples:
        frames = tuple((f.function, f.file, f.line) for f in sample.frames)
        found[frames] += sample.values[place]
    return +found


def type_of(profile: Profile, place: int) -> str:
    """What Parca calls a value of a profile."""
    name = SERIES.get(profile.kind, profile.kind)
    value, period = profile.sample_types[place], profile.period_type
    text = f"{name}:{value.type}:{value.unit}:{period.type}:{period.unit}"
    return text + ("" if kind_named(profile.kind).is_moment else ":delta")


def test_parca_has_each_sample_of_what_the_agent_recorded(tmp_path: Path) -> None:
    with started(tmp_path, OTEL_SERVICE_NAME="till") as till, Parca(tmp_path) as parca:
        text = settings(tmp_path, table("parca", parca.url), kinds=KINDS)
        with RunningAgent(tmp_path, text) as agent:
            agent.await_windows(1)
            till.ask("hand", "done")
            agent.await_windows(3)
            assert agent.end() == 0
            assert "could not deliver" not in agent.said
            windows = agent.windows()
        expected = list(files(tmp_path, windows))
        assert hands(tmp_path, windows) == HANDS
        assert parca.label_values("service_name") == ["till"]
        compared = 0
        for window, kind, profile in expected:
            at_s = window.times[1] if kind_named(kind).is_moment else profile.time_ns / 1e9
            for place, value in enumerate(profile.sample_types):
                if value.type == "samples":
                    continue  # it multiplies them by the period, and answers in nanoseconds
                query = f'{type_of(profile, place)}{{service_name="till"}}'
                found = parca.profile(query, at_s - 0.002, at_s + 0.002)
                assert shown(found, 0) == shown(profile, place), query
                compared += 1
        assert compared > 10
        assert {type_of(profile, 0) for _, _, profile in expected} <= parca.types()


def test_nothing_that_we_send_ends_it(tmp_path: Path) -> None:
    now_s = time() - 120
    good = made_up("block", now_s, labels=(Label("route", "/pay"), Label("bytes", 7, "bytes")))
    labels = {"größe-µ": "ß" * 3000, "0": "x", "a.b": "1", "a_b": "2"}
    identity = ServiceIdentity("größe 'shop' {a=\"b\"}", labels=labels)
    window = replace(window_of(now_s, {"block": good}), identity=identity)
    bad = (
        replace(good, samples=()),
        replace(good, period_type=ValueType("", "")),
        replace(good, sample_types=()),
        replace(good, kind="mutex", sample_types=(*good.sample_types[:1], ValueType("a-b", "c"))),
    )
    with Parca(tmp_path) as parca:
        delivery = delivery_to(parca)
        delivery.deliver(window)
        for number, profile in enumerate(bad):
            other = replace(window, pid=number + 1, profiles={profile.kind: profile})
            if profile.samples:
                with pytest.raises(Refused):
                    delivery.deliver(other)
            else:
                delivery.deliver(other)
        large = made_up("block", now_s + 60, stacks=20_000)
        delivery.deliver(window_of(now_s + 60, {"block": large}))
        delivery.close()
        assert not parca.has_ended
        found = parca.profile(type_of(large, 1), now_s + 59, now_s + 61)
        assert sum(shown(found, 0).values()) == sum(sample.values[1] for sample in large.samples)


def test_a_parca_that_comes_back_gets_the_window(tmp_path: Path) -> None:
    now_s = time() - 120
    with Parca(tmp_path) as parca:
        delivery = delivery_to(parca)
        delivery.deliver(window_of(now_s))
        port = parca.port
    with pytest.raises(RetryLater):
        delivery.deliver(window_of(now_s + 60))
    with Parca(tmp_path, port) as parca:
        delivery.deliver(window_of(now_s + 60))
        delivery.close()
        assert parca.label_values("pod") == ["shop-5d8f"]
