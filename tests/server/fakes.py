"""A live session without a kernel, and requests to the application without a network."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from starlette.types import ASGIApp, Message

from ebpfprof.continuous.follow import Discovery
from ebpfprof.continuous.manager import Recorder
from ebpfprof.discovery.processes import GoProcess, ProcessTable
from ebpfprof.errors import EbpfprofError, NotGoProgram, TargetGone
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Overhead, Runs
from ebpfprof.process.process import Target, TargetEnd
from ebpfprof.profile.delta import difference
from ebpfprof.profile.model import Kind, Profile, Sample, cpu_profile, wait_profile
from ebpfprof.profilers.report_builder import Report
from ebpfprof.server.access import Policy
from ebpfprof.server.app import application
from tests.unit.export.small_profile import LOCK, MAIN, RECEIVE, WORK

ALL_KINDS: tuple[Kind, ...] = ("block", "mutex", "cpu")
PID = 4_194_400  # no process has it: it is above PID_MAX_LIMIT
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class FakeAccount:
    """Says how many events there were."""

    title: str
    events: int

    def __sub__(self, earlier: FakeAccount) -> FakeAccount:
        return FakeAccount(self.title, self.events - earlier.events)

    def __add__(self, later: FakeAccount) -> FakeAccount:
        return FakeAccount(self.title, self.events + later.events)

    def comments(self) -> tuple[str, ...]:
        return (f"{self.title}: {self.events}",)


@dataclass(eq=False)
class FakeTarget:
    """A target whose sums grow when the test says so."""

    pid: int
    name: str = "shop"
    go_version: str | None = "go1.27.3"
    kinds: tuple[Kind, ...] = ALL_KINDS
    ending: TargetEnd | None = None
    users: int = 0
    begun: int = 0
    starts: int = 0
    snapshots: int = 0
    watched_s: int = 0
    events: int = 0
    is_removed: bool = False

    @property
    def is_recording(self) -> bool:
        return self.users > 0

    def work(self, seconds: int = 1) -> None:
        """A lock is waited for once a second, if it is recorded."""
        if self.users:
            self.watched_s += seconds
            self.events += seconds

    def profile(self, kind: Kind) -> Profile:
        times: dict[str, Any] = {
            "time_ns": 1_700_000_000 * SECOND_NS,
            "duration_ns": self.watched_s * SECOND_NS,
        }
        values = (self.events, self.events * 1000)
        locks = [Sample((LOCK, WORK), values)] if self.events else []
        steady = [Sample((RECEIVE, WORK), (1, 10))] if self.starts else []
        samples = [*locks, *steady]
        account = FakeAccount(f"{kind} of {self.pid}", self.events)
        if kind == "cpu":
            profile = cpu_profile(samples, [MAIN], period_ns=10_101_010, **times)
        else:
            profile = wait_profile(kind, samples, [MAIN], **times)
        return profile.accounted(account)


@dataclass(eq=False)
class FakeSamples:
    """As ebpfprof.recording.live.Samples."""

    before: Profile


@dataclass
class FakeLive:
    """As ebpfprof.recording.live.LiveSession."""

    targets: dict[int, FakeTarget] = field(default_factory=dict)
    lost: list[Loss] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    """Until it is set, to start takes its time."""
    refusal: EbpfprofError | None = None
    """What add() raises."""
    adds: int = 0

    def __post_init__(self) -> None:
        self.gate.set()

    def add(self, pid: int) -> FakeTarget:
        self.adds += 1
        if self.refusal:
            raise self.refusal
        if pid not in self.targets:
            raise NotGoProgram(f"Process {pid} is none of ours.")
        return self.targets[pid]

    def start(self, target: FakeTarget) -> None:
        assert not target.is_removed
        target.begun += 1
        assert self.gate.wait(60)
        target.users += 1
        target.starts += 1

    def stop(self, target: FakeTarget) -> None:
        assert target.users > 0
        target.users -= 1

    def remove(self, target: FakeTarget) -> None:
        target.is_removed = True

    def snapshot(self, target: FakeTarget, kinds: Collection[str] | None = None) -> Report:
        assert not target.is_removed
        target.snapshots += 1
        wanted = set(target.kinds if kinds is None else kinds) - {"cpu"}
        profiles = [target.profile(kind) for kind in target.kinds if kind in wanted]
        return Report(cast("Target", None), profiles)

    def begin(self, target: FakeTarget) -> FakeSamples | None:
        assert not target.is_removed
        return FakeSamples(target.profile("cpu")) if "cpu" in target.kinds else None

    def read(self, target: FakeTarget, samples: FakeSamples, *, restart: bool = False) -> Report:
        assert not target.is_removed
        target.snapshots += 1
        now = target.profile("cpu")
        found = difference(now, samples.before)
        if restart:
            samples.before = now
        return Report(cast("Target", None), [found])

    def overhead(self, target: FakeTarget) -> Overhead:
        if target.is_removed:
            raise TargetGone("Let go of.")
        return Overhead(Runs(target.snapshots, 0.0), Runs(), 1e9, cpu_ns=1)

    def losses(self) -> Iterable[Loss]:
        return self.lost


class FakeDiscovery(Discovery):
    """Finds those processes that the test says there are."""

    def __init__(self, recorder: Recorder, *found: GoProcess, **options: Any) -> None:  # noqa: ANN401
        super().__init__(recorder, cast("ProcessTable", None), **options)
        self.found = list(found)

    def follow(self) -> None:
        self._follows = True

    async def look(self) -> None:
        self._take(self.found)


def process(pid: int, **fields: Any) -> GoProcess:  # noqa: ANN401
    known = GoProcess(pid, "shop", "shop -x", "eve", "go1.27.3", "exe", None, True, "")
    return replace(known, **fields)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        return json.loads(self.body)


class Client:
    """Asks an application as a connection on loopback would."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def ask(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = b"",
        hang_up: asyncio.Event | None = None,
        peer: tuple[str, int] | None = ("127.0.0.1", 1),
    ) -> Answer:
        """The answer; status 0 if there was none. `hang_up` is set when the client goes.

        A `body` of None never comes.
        """
        path, _, query = url.partition("?")
        given = {"host": "localhost:6060", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": peer,
            "server": ("127.0.0.1", 6060),
        }
        sent: list[Message] = []
        requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        requests = requests if body is not None else []

        async def receive() -> Message:
            if requests:
                return requests.pop()
            await (hang_up or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        start = next(each for each in sent if each["type"] == "http.response.start")
        found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        content = b"".join(each.get("body", b"") for each in sent)
        return Answer(start["status"], found, content)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so; fails if it never is."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


@dataclass
class Service:
    """An application over the fake, with the processes that are served."""

    live: FakeLive
    recorder: Recorder
    discovery: FakeDiscovery
    client: Client

    @classmethod
    async def of(cls, *targets: FakeTarget, **options: Any) -> Self:  # noqa: ANN401
        """Serves `targets`; `options` are the recorder's."""
        live = FakeLive({each.pid: each for each in targets})
        recorder = Recorder(live, kinds=ALL_KINDS, **options)
        discovery = FakeDiscovery(recorder, *(process(each.pid) for each in targets))
        for each in targets:
            recorder.serve_opened(each)
        await discovery.look()
        app = application(recorder, discovery, Policy(is_unix=True))
        return cls(live, recorder, discovery, Client(app))
