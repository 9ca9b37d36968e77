"""What services waited, of a bounded number of names."""

from __future__ import annotations

from ebpfprof.agent.figures import Figures
from ebpfprof.agent.service_sums import KEPT_S, OTHERS, ServiceSums
from ebpfprof.continuous.history import Window
from ebpfprof.profile.delta import totals
from ebpfprof.profile.length_counts import KnownWaits
from ebpfprof.profile.service import ServiceIdentity
from ebpfprof.profile.wait_histogram import WaitHistogram
from tests.backends.windows import made_up


def noted(sums: ServiceSums, service: str, at_s: float, namespace: str = "", ns: int = 5) -> None:
    times = at_s, at_s + 60
    waits = {"block": KnownWaits(WaitHistogram.of([ns]), ns)}
    identity = ServiceIdentity(service, namespace, pod=f"{service}-{at_s}")
    sums.note(identity, times, {"block": ns}, waits)


def test_windows_of_all_processes_of_a_service_are_added_up() -> None:
    sums = ServiceSums(9)
    noted(sums, "shop", 0)
    noted(sums, "shop", 60, ns=7)
    noted(sums, "shop", 60, "staging")
    found = sums.all()
    assert list(found) == [("shop", ""), ("shop", "staging")]
    assert found["shop", ""].amounts_ns == {"block": 12}
    assert found["shop", ""].recorded_s == 120
    waits = found["shop", ""].lengths["block"]
    assert (waits.counts[-1], waits.ns) == (2, 12)


def test_there_are_not_more_names_than_the_limit() -> None:
    sums = ServiceSums(2)
    for service in ("a", "b", "c", "d", "a", "c"):
        noted(sums, service, 0)
    found = sums.all()
    assert list(found) == [("a", ""), ("b", ""), OTHERS]
    assert found[OTHERS].amounts_ns == {"block": 15}


def test_a_service_that_is_gone_for_an_hour_makes_room() -> None:
    sums = ServiceSums(2)
    noted(sums, "gone", 0)
    noted(sums, "stays", 0)
    noted(sums, "stays", KEPT_S - 60)
    noted(sums, "early", KEPT_S - 60)
    assert ("early", "") not in sums.all()
    noted(sums, "new", KEPT_S)
    assert list(sums.all()) == [("new", ""), OTHERS, ("stays", "")]
    noted(sums, "gone", KEPT_S)
    assert sums.all()[OTHERS].amounts_ns == {"block": 10}


def test_the_rest_takes_no_name_from_others() -> None:
    sums = ServiceSums(1)
    noted(sums, "a", 0)
    noted(sums, "b", 0)
    noted(sums, "a", KEPT_S)
    before = sums.all()
    noted(sums, "c", KEPT_S)
    assert list(sums.all()) == [("a", ""), OTHERS]
    assert before[OTHERS].amounts_ns == {"block": 5}  # a copy
    assert before[OTHERS].lengths["block"].ns == 5


def test_without_a_limit_there_is_nothing() -> None:
    sums = ServiceSums(0)
    noted(sums, "shop", 0)
    assert sums.all() == {}


def test_figures_add_up_windows_and_leave_out_what_shows_a_moment() -> None:
    profiles = {kind: made_up(kind, 0.0) for kind in ("block", "cpu", "goroutine", "heap")}
    figures = Figures(services=ServiceSums(3))
    for _ in range(2):
        figures.note(Window(0.0, 60.0, profiles), ServiceIdentity("shop"))
    block, cpu = totals(profiles["block"]), totals(profiles["cpu"])
    assert figures.windows == 2
    assert figures.events == {"block": 2 * block[0], "cpu": 2 * cpu[0]}
    assert figures.amounts == {"block": 2 * block[1], "cpu": 2 * cpu[1]}
    (found,) = figures.of_services().values()
    assert found.amounts_ns == figures.amounts
    assert found.recorded_s == 120
