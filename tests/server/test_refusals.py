"""Errors: a page for people in a browser, a line of text for tools, JSON for our own page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest
from starlette.types import Receive, Scope, Send

from ebpfprof.server.access import COOKIE, Access, Policy
from ebpfprof.server.refusals import refused
from tests.continuous.fakes import PID, FakeTarget
from tests.continuous.loops import run
from tests.server.fakes import Answer, Client, Service

# What Chromium sends for a page, and what tools send: Go's client nothing, curl and Prometheus.
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
TOOLS: list[dict[str, str]] = [
    {},
    {"accept": "*/*"},
    {"accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"},
    {"accept": "application/json"},
]
TOKEN = "0123456789abcdef-Secret"
HOSTILE = "<img src=x onerror=alert(1)>"


class _Read(HTMLParser):
    """The tags with their attributes, and the text."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(body.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def refusal(status: int, headers: Mapping[str, str], path: str = "/x") -> Answer:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await refused(scope, status, f"No {HOSTILE}.")(scope, receive, send)

    return asyncio.run(Client(app).ask(path, headers=headers))


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 500, 503])
def test_people_get_a_page_and_tools_a_line(status: int) -> None:
    page = refusal(status, BROWSER)
    assert (page.status, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    read = _Read(page.body)
    assert f"No {HOSTILE}." in read.text
    assert not read.of("img")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "'unsafe" not in policy
    assert bool(read.of("form")) == (status == 401)
    assert ("/" in [each["href"] for each in read.of("a")]) == (status != 401)
    for headers in TOOLS:
        line = refusal(status, headers)
        assert (line.status, line.body) == (status, f"No {HOSTILE}.\n".encode())
        assert line.headers["content-type"] == "text/plain; charset=utf-8"
        assert line.headers["x-go-pprof"] == "1"
        assert refusal(status, headers, "/api/x").json == {"error": f"No {HOSTILE}."}
    assert refusal(status, BROWSER, "/api/x").json == {"error": f"No {HOSTILE}."}


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("/", "/"),
        ("/debug/pprof/?debug=1", "/debug/pprof/"),
        ("//evil.example/x", "/evil.example/x"),
        ("/\\evil.example", "/evil.example"),
        ('/"><script>', '/"><script>'),
    ],
)
def test_the_form_for_the_token_sends_it_to_this_server(path: str, action: str) -> None:
    read = _Read(refusal(401, BROWSER, path).body)
    assert [each["action"] for each in read.of("form")] == [action]
    assert [each["name"] for each in read.of("input")] == ["token"]
    assert not read.of("script")


def test_a_browser_keeps_the_token_of_any_page_in_a_cookie() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await refused(scope, 404, "Let in.")(scope, receive, send)

    client = Client(Access(app, Policy(token=TOKEN)))
    path = "/debug/pprof/"
    moved = asyncio.run(client.ask(f"{path}?x=1&token={TOKEN}", headers=BROWSER))
    assert (moved.status, moved.headers["location"]) == (303, f"{path}?x=1")
    assert moved.headers["set-cookie"].startswith(f"{COOKIE}={TOKEN};")
    away = asyncio.run(client.ask(f"//evil.example/?token={TOKEN}", headers=BROWSER))
    assert away.headers["location"] == "/evil.example/"
    # A tool follows no redirect, and keeps no cookie.
    assert asyncio.run(client.ask(f"{path}?token={TOKEN}")).body == b"Let in.\n"


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/nothing", 404, "There is nothing here"),
        ("/debug/pprof/block?seconds=x", 400, "must be a positive integer"),
        ("/proc/1/debug/pprof/block", 404, "Process 1 is not served here"),
        ("/assets/none.js", 404, "There is nothing here"),
    ],
)
def test_the_application_answers_people_with_pages(path: str, status: int, words: str) -> None:
    async def work() -> None:
        service = await Service.of(FakeTarget(PID))
        answer = await service.client.ask(path, headers=BROWSER)
        assert (answer.status, answer.headers["content-type"]) == (
            status,
            "text/html; charset=utf-8",
        )
        assert words in _Read(answer.body).text

    run(work())
