"""A server of the page with made-up processes and profiles: real files, real JSON, no probe."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from mimetypes import guess_type
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ebpfprof.export import json_profile
from ebpfprof.goruntime.goroutines.state_counts import GROUPS
from ebpfprof.profile.model import (
    Frame,
    Label,
    Location,
    Mapping,
    Profile,
    Sample,
)
from ebpfprof.profilers.cpu.kind import CPU
from ebpfprof.profilers.registry import kind_named, kinds
from ebpfprof.profilers.waits.kinds import BLOCK
from ebpfprof.server.app import WEB_FOLDER
from ebpfprof.server.page_api import described_kind

START_S = 1_790_000_000
WINDOW_S = 5
WINDOWS = 40
MOMENTS = 90
HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><b>name"
_MAIN = Mapping(0x400000, 0x800000, 0, "/srv/shop", "")


def stack(*functions: str, line: int = 10) -> tuple[Location, ...]:
    """A stack of these functions, leaf first."""
    return tuple(
        Location(0x400000 + 64 * (hash((name, line)) % 10_000) + 1, _MAIN, (_frame(name, line),))
        for name in functions
    )


def _frame(name: str, line: int) -> Frame:
    return Frame(name, f"/src/{name.rsplit('.', 1)[0].strip('(*)<')}.go", line)


def block_profile(scale: int = 1) -> Profile:
    """A lock that is contended, a hand-over, and a worker that waits for work."""
    lock = Label("lock", "main.Cache.mu")
    samples = [
        Sample(
            stack("sync.(*Mutex).Lock", "main.(*Cache).Get", "main.serve", line=79),
            (100 * scale, 8_000_000_000 * scale),
            (lock, Label("tenant", "blue")),
        ),
        Sample(
            stack("runtime.chanrecv1", "main.answer", "main.serve"),
            (10, 2_000_000_000),
            (Label("tenant", "green"),),
        ),
        Sample(stack("runtime.chanrecv2", "main.worker"), (50, 30_000_000_000)),
        Sample(stack("runtime.selectgo", HOSTILE, "main.serve"), (1, 1_000_000)),
    ]
    return BLOCK.make_profile(
        samples,
        (_MAIN,),
        time_ns=START_S * 1_000_000_000,
        duration_ns=WINDOW_S * 1_000_000_000,
        comments=["ebpfprof: a block profile", "incomplete: 3 events"],
    )


def cpu_profile() -> Profile:
    """Two functions."""
    samples = [
        Sample(stack("main.hash", "main.serve"), (30, 300_000_000)),
        Sample(stack("main.parse", "main.serve"), (10, 100_000_000)),
    ]
    assert samples[0].values[1] == 30 * 10_000_000
    profile = CPU.make_profile(
        samples,
        (_MAIN,),
        period=10_000_000,
        time_ns=START_S * 1_000_000_000,
        duration_ns=WINDOW_S * 1_000_000_000,
        comments=[],
    )
    assert profile.sample_types[1].type == "cpu"
    return profile


def described(pid: int, name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A process as the server describes it."""
    return {
        "pid": pid,
        "name": name,
        "command": f"/srv/{name} -serve",
        "go": "go1.27.3",
        "container": None,
        "user": "root",
        "supported": True,
        "why_not": "",
        "recording": True,
        "kinds": ["block", "mutex", "cpu"],
        "read": [],
        "cpu": 0.5,
        "memory_bytes": 64 << 20,
        "goroutines": 42,
        "not_read": 0,
        "findings": [],
        "prefix": f"/proc/{pid}",
        "ended": None,
        "last": {"is_there": False, "says": ""},
        "state": "recording",
        "says": "Recording.",
        **fields,
    }


def explanation(*findings: dict[str, Any], **fields: object) -> dict[str, Any]:
    """What the server says of a process that it observed."""
    return {
        "pid": 1234,
        "name": "shop",
        "go": "go1.27.3",
        "seconds": 10.0,
        "overhead": 0.001,
        "findings": list(findings),
        "fine": ["no deadlock, no hang", "locks 2 %"],
        "incomplete": [],
        **fields,
    }


def point(number: int, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """What a process used at a moment, each two seconds after the one before."""
    return {
        "time_s": START_S + 2.0 * number,
        "seconds": 2.0 if number else None,
        "goroutines": {state: 3 * place for place, state in enumerate(GROUPS)},
        "cpu": {"used": 0.5, "throttled": 0.25, "quota": 0.75, "gomaxprocs": 8},
        "memory": {
            "heap_bytes": (40 + number) << 20,
            "goal_bytes": 100 << 20,
            "gomemlimit_bytes": None,
            "resident_bytes": 120 << 20,
            "group_used_bytes": 110 << 20,
            "group_limit_bytes": 1 << 30,
        },
        "collections": {"count": 3, "stopped": 0.001},
        **fields,
    }


@dataclass
class PageServer:
    """What it answers; may be changed at any time."""

    targets: list[dict[str, Any]] = field(default_factory=lambda: [described(1234, "shop")])
    profiles: dict[str, Profile] = field(
        default_factory=lambda: {"block": block_profile(), "cpu": cpu_profile()}
    )
    bodies: dict[str, bytes] = field(default_factory=dict)
    """The JSON of profiles that takes too long to write each time, by kind."""
    findings: list[dict[str, Any]] = field(default_factory=list)
    """Of goroutines that hang or leak."""
    explanation: dict[str, Any] = field(default_factory=explanation)
    """What is wrong, or an error."""
    references: dict[str, Any] = field(default_factory=lambda: {"error": "No heap was made up."})
    """What keeps memory alive, or an error."""
    points: list[dict[str, Any]] = field(default_factory=lambda: [point(n) for n in range(MOMENTS)])
    """The last minutes."""
    requests: list[dict[str, float]] = field(default_factory=list)
    """Requests a second of windows with a block profile."""
    unwatched: str = ""
    """Why goroutines can't be read."""
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Lines of files, by the paths that profiles name."""
    base: Profile | None = None
    """The answer for a time before the last ten windows."""
    refusal: tuple[int, str] | None = None
    """For all of /api/."""
    no_profile: str = ""
    """Why there is none, as a 404."""
    state: tuple[str, str] = ("recording", "Recording.")
    """The state of a process, and what it says, once its timeline was asked for."""
    windows: list[dict[str, Any]] = field(default_factory=list)
    """Those of the timeline; WINDOWS made-up ones without."""
    has_windows: bool = True
    """Whether there are any."""
    recorded: tuple[str, ...] = ("block", "mutex", "cpu")
    """The kinds that are recorded."""
    last_s: float | None = None
    """How many of the last seconds of traces are kept."""
    trace: tuple[int, bytes] = (200, b"a trace")
    """The answer to a request for one."""
    asked: list[str] = field(default_factory=list)
    answers_profiles: threading.Event = field(default_factory=threading.Event)
    """While it is not set, a request for a profile waits."""

    def __post_init__(self) -> None:
        self.answers_profiles.set()

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, str, bytes]:
        """Status, media type and body of a GET."""
        if path.endswith("/debug/pprof/trace"):
            return self.trace[0], "application/octet-stream", self.trace[1]
        if not path.startswith("/api/"):
            name = "index.html" if path == "/" else path.removeprefix("/assets/")
            body = (WEB_FOLDER / name).read_bytes()
            return 200, guess_type(name)[0] or "text/plain", body
        if self.refusal:
            return self.refusal[0], "application/json", _error(self.refusal[1])
        if path == "/api/targets":
            found = {
                "version": "1.2.3",
                "interval_s": 60.0,
                "retention_s": 600.0,
                "last_s": self.last_s,
                "kinds": [described_kind(kind, self.recorded) for kind in kinds()],
                "targets": self.targets,
            }
            return 200, "application/json", json.dumps(found).encode()
        kind = query.get("kind", "block")
        if path.endswith("/goroutines"):
            watched = {"sampled_s": None, "goroutines": 9, "samples": 1, "not_read": 0}
            known = {**watched, "problem": self.unwatched, "findings": self.findings}
            return 200, "application/json", json.dumps(known).encode()
        if path.endswith("/explain"):
            code = 500 if "error" in self.explanation else 200
            return code, "application/json", json.dumps(self.explanation).encode()
        if path.endswith("/references"):
            code = 500 if "error" in self.references else 200
            return code, "application/json", json.dumps(self.references).encode()
        if path.endswith("/series"):
            after_s = float(query["after"])
            points = [one for one in self.points if one["time_s"] > after_s]
            series = {"interval_s": 2.0, "kept_s": 600.0, "problem": "", "points": points}
            series["requests"] = [one for one in self.requests if one["end_s"] > after_s - 10]
            return 200, "application/json", json.dumps(series).encode()
        if path.endswith("/source"):
            found = self.sources.get(query["file"], {"problem": "Start serve with --source DIR."})
            return 200, "application/json", json.dumps(found).encode()
        if path.endswith("/timeline"):
            return 200, "application/json", self._timeline(kind)
        assert self.answers_profiles.wait(60)
        if kind in self.bodies:
            return 200, "application/json", self.bodies[kind]
        if self.no_profile or kind not in self.profiles:
            return 404, "application/json", _error(self.no_profile or "It was not recorded.")
        profile = self.profiles[kind]
        edge_s = START_S + (WINDOWS - 10) * WINDOW_S
        if self.base and float(query.get("to", edge_s + 1)) <= edge_s:
            profile = self.base
        return 200, "application/json", json_profile.encode(profile)

    def _timeline(self, kind: str) -> bytes:
        windows = self.windows or [
            {
                "start_s": START_S + index * WINDOW_S,
                "end_s": START_S + (index + 1) * WINDOW_S,
                "count": index,
                "value": (index + 1) * 1_000_000,
            }
            for index in range(WINDOWS)
        ]
        unit = kind_named(kind).sample_types[-1].unit
        body = {"kind": kind, "unit": unit, "interval_s": WINDOW_S}
        body["windows"] = windows if self.has_windows else []
        body |= {"state": self.state[0], "says": self.state[1]}
        return json.dumps(body).encode()


def _error(sentence: str) -> bytes:
    return json.dumps({"error": sentence}).encode()


@dataclass
class PageSite:
    """A site on loopback, and what it answers now."""

    url: str
    answers: PageServer


@contextmanager
def page_site() -> Iterator[PageSite]:
    """Serve on a free port of loopback while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections

        def do_GET(self) -> None:
            served = site.answers
            address = urlsplit(self.path)
            served.asked.append(self.path)
            query = {key: values[0] for key, values in parse_qs(address.query).items()}
            code, media_type, body = served.answer(address.path, query)
            self.send_response(code)
            self.send_header("Content-Type", media_type)
            if address.path.endswith("/trace"):
                self.send_header("Content-Disposition", 'attachment; filename="shop.trace"')
                self.send_header("X-Ebpfprof-Comments", '["recorded 2 s of 10 s"]')
            if address.path.startswith("/assets/"):
                self.send_header("Cache-Control", "max-age=3600")  # once for all tests
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", "default-src 'self'")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = PageSite(f"http://127.0.0.1:{server.server_address[1]}/", PageServer())
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
