"""Requests of net/http in dumps: as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from ebpfprof.export.tables import goroutines
from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump, HttpRequest
from ebpfprof.profile.model import Frame

STACK = (Frame("sync.(*Mutex).Lock", "/go/mutex.go", 1), Frame("main.checkout", "/src/shop.go", 7))
ROUTED = HttpRequest("POST", "/items/17", "POST /items/{id}")
PLAIN = HttpRequest("GET", "/checkout", "")


def goroutine(goid: int, request: HttpRequest | None) -> DumpedGoroutine:
    bare = DumpedGoroutine(goid, "sync.Mutex.Lock", STACK, True, 0, 0, False, None, 0, ())
    return replace(bare, request=request)


def text(*requests: HttpRequest | None, each_alone: bool = False) -> str:
    made = tuple(goroutine(7 + n, request) for n, request in enumerate(requests))
    dump = GoroutineDump(1234, "shop", "go1.27", 0, made, 0, 0, 0)
    return goroutines.render(dump, each_alone=each_alone, width=80, color=False)


def test_one_goroutine_has_its_route_and_its_path() -> None:
    assert "    handling POST /items/{id}, path /items/17\n" in text(ROUTED)
    assert "    handling GET /checkout\n" in text(PLAIN, each_alone=True)
    assert "handling" not in text(None)


def test_a_group_has_its_routes_the_most_frequent_first() -> None:
    others = [HttpRequest("GET", f"/{n}", "") for n in range(4)]
    shown = text(*others, ROUTED, ROUTED, None)
    assert "handling POST /items/{id} (2), GET /0 (1), GET /1 (1) and 2 more\n" in shown


def test_a_pattern_without_a_method_gets_that_of_the_request() -> None:
    assert HttpRequest("GET", "/a/b", "/a/").route == "GET /a/"
    assert HttpRequest("GET", "/a/b", "GET /a/").route == "GET /a/"


def test_paths_can_not_control_the_terminal() -> None:
    assert "\x1b" not in text(HttpRequest("GET", "/\x1b[31m", ""))


def test_json_has_all_of_it() -> None:
    dump = GoroutineDump(1, "x", "go1.27", 0, (goroutine(7, ROUTED), goroutine(8, None)), 0, 0, 0)
    first, second = json.loads(goroutines.encode(dump))["goroutines"]
    expected = {"method": "POST", "path": "/items/17", "pattern": "POST /items/{id}"}
    assert first["request"] == expected
    assert second["request"] is None
