"""What services waited, of a bounded number of names."""

from __future__ import annotations

from ebpfprof.agent.service_sums import KEPT_S, OTHERS, ServiceSums
from ebpfprof.profile.service import ServiceIdentity


def noted(sums: ServiceSums, service: str, at_s: float, namespace: str = "", ns: int = 5) -> None:
    times = at_s, at_s + 60
    sums.note(ServiceIdentity(service, namespace, pod=f"{service}-{at_s}"), times, {"block": ns})


def test_windows_of_all_processes_of_a_service_are_added_up() -> None:
    sums = ServiceSums(9)
    noted(sums, "shop", 0)
    noted(sums, "shop", 60, ns=7)
    noted(sums, "shop", 60, "staging")
    found = sums.all()
    assert list(found) == [("shop", ""), ("shop", "staging")]
    assert found["shop", ""].amounts_ns == {"block": 12}
    assert found["shop", ""].recorded_s == 120


def test_there_are_no_more_names_than_the_limit() -> None:
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


def test_without_a_limit_there_is_nothing() -> None:
    sums = ServiceSums(0)
    noted(sums, "shop", 0)
    assert sums.all() == {}
