"""How many requests a server answered, by its waits at the end of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ebpfprof.profile.model import Frame, Location, Sample
from ebpfprof.profile.served_requests import ServedRequests, served_requests
from ebpfprof.profilers.registry import kind_named
from tests.unit.export.small_profile import SMALL

WAIT, ABORT = "sync.(*Cond).Wait", "net/http.(*connReader).abortPendingRead"


def sample(*functions: str, count: int = 1) -> Sample:
    frames = tuple(Frame(function, "", 0) for function in functions)
    return Sample((Location(1, None, frames),), (count, 10), count_variance=4.0 * count)


def test_each_wait_at_the_end_of_a_request_is_a_request() -> None:
    waits = (
        sample(WAIT, ABORT, "net/http.(*response).finishRequest", count=5),
        sample(WAIT, ABORT, count=4),
        sample(WAIT, "main.wait", ABORT, count=100),
        sample(ABORT, WAIT, count=100),
    )
    found = served_requests(replace(SMALL, samples=waits))
    assert found == ServedRequests(9, 36.0)
    assert found.error == pytest.approx(6 / 9)


def test_a_profile_that_counts_no_waits_shows_no_requests() -> None:
    cpu = kind_named("cpu").make_profile([sample(WAIT, ABORT)], (), time_ns=0, duration_ns=0)
    assert served_requests(cpu) == ServedRequests(0, 0.0)
    assert served_requests(cpu).error == 0
