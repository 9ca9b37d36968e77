"""The routes of handlers, by the requests that they were seen with."""

from __future__ import annotations

import pytest

from ebpfprof.profile.goroutines import HttpRequest
from ebpfprof.profile.model import PeerSamples
from ebpfprof.profile.routes import OTHER_PEERS, SeenPeers, SeenRoutes

PAY = "main.(*Shop).pay"


def routes(*requests: HttpRequest, function: str = PAY) -> dict[str, str]:
    """Those of one handler, each of whose requests is handled by a goroutine of its own."""
    seen = SeenRoutes()
    for goid, request in enumerate(requests):
        seen.add(function, goid, request)
    return seen.by_function()


@pytest.mark.parametrize(
    ("pattern", "route"),
    [
        ("POST /pay/{id}", "POST /pay/{id}"),
        ("/pay/", "POST /pay/"),
        ("shop.example/pay/", "POST shop.example/pay/"),
    ],
)
def test_a_pattern_is_the_route_whatever_the_paths_are(pattern: str, route: str) -> None:
    seen = (HttpRequest("POST", f"/pay/{number}", pattern) for number in range(5))
    assert routes(*seen) == {PAY: route}


def test_a_pattern_for_all_methods_has_none_once_two_were_seen() -> None:
    assert routes(HttpRequest("GET", "/", "/"), HttpRequest("PUT", "/", "/")) == {PAY: "/"}


def test_a_handler_with_several_patterns_has_no_route() -> None:
    two = HttpRequest("GET", "/a", "/a"), HttpRequest("GET", "/b", "/b")
    assert routes(*two) == {}
    assert routes(*two, *[two[0]] * 9) == {}
    assert routes(two[0], HttpRequest("GET", "/a", "")) == {}


def test_without_a_pattern_it_is_a_path_that_several_goroutines_had() -> None:
    health = HttpRequest("GET", "/health", "")
    assert routes(health, health) == {}
    assert routes(health, health, health) == {PAY: "GET /health"}
    seen = SeenRoutes()
    for _ in range(9):
        seen.add(PAY, 7, health)
    assert seen.by_function() == {}


def test_paths_that_differ_are_no_route() -> None:
    assert routes(*(HttpRequest("GET", f"/items/{number}", "") for number in range(9))) == {}


def test_what_a_program_may_name_is_bounded() -> None:
    assert len(routes(HttpRequest("GET", "/", "/" * 5000))[PAY]) == 200
    seen = SeenRoutes()
    for number in range(10_000):
        seen.add(f"main.f{number}", 1, HttpRequest("GET", "/", "/"))
    assert 1000 < len(seen.by_function()) < 10_000


def test_of_many_peers_only_the_first_ones_have_names() -> None:
    seen = SeenPeers()
    for number in range(100):
        seen.add(PAY, "IO wait", f"10.0.0.{number}:80")
    seen.add(PAY, "IO wait", "10.0.0.3:80")
    found = seen.all()
    assert sum(one.samples for one in found) == 101
    assert len(found) == 9
    assert found[0] == PeerSamples(PAY, "IO wait", OTHER_PEERS, 92)
    assert found[1] == PeerSamples(PAY, "IO wait", "10.0.0.3:80", 2)
