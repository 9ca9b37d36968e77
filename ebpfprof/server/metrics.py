"""What Prometheus scrapes: what was recorded and lost, and what it cost."""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import ebpfprof
from ebpfprof.errors import TargetGone
from ebpfprof.kernel.losses import loss_kinds
from ebpfprof.profile.asleep import Asleep
from ebpfprof.profile.deadlocks import Circle
from ebpfprof.profile.stuck import LostWake
from ebpfprof.profilers.registry import kinds
from ebpfprof.server.length_metrics import add_lengths, length_family
from ebpfprof.server.memory_metrics import MemoryMetrics
from ebpfprof.server.pprof_endpoints import endpoint_names

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Manager
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.goruntime.open_processes import OpenProcesses
    from ebpfprof.overhead.cost import Overhead
    from ebpfprof.profile.losses import Loss
    from ebpfprof.profile.stuck import Stuck
    from ebpfprof.server.flight_recorders import FlightRecorders
    from ebpfprof.server.watches import GoroutineWatches

_OF_PROCESS = ("pid", "command")
_STUCK = {Circle: "deadlocked", LostWake: "lost_wake", Asleep: "asleep"}
_OF_KIND = (*_OF_PROCESS, "kind")


class Metrics:
    """The endpoint /metrics, with a registry of its own."""

    def __init__(
        self,
        manager: Manager,
        watches: GoroutineWatches,
        recorders: FlightRecorders,
        processes: OpenProcesses,
    ) -> None:
        self._manager = manager
        self._registry = CollectorRegistry()
        self.requests: Counter[tuple[str, str]] = Counter()
        """How many were answered, by endpoint and status."""
        self._sums = _Sums(manager, recorders, self.requests)
        self._registry.register(self._sums)
        self._registry.register(_Goroutines(manager, watches))
        self._registry.register(Build())
        self._memory = MemoryMetrics(manager, processes)
        self._registry.register(self._memory)
        ProcessCollector(registry=self._registry)  # process_cpu_seconds_total and so on

    async def __call__(self, request: Request) -> Response:
        """The metrics as text, in the format that the client takes: OpenMetrics or Prometheus's.

        A request for them starts no recording.
        """
        await asyncio.to_thread(self._sums.read, list(self._manager.processes))
        await asyncio.to_thread(self._memory.read)
        encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        headers = {"X-Content-Type-Options": "nosniff", "Vary": "Accept"}
        return Response(encoder(self._registry), 200, headers, content_type)


class Counted:
    """Middleware (ASGI) that counts answers."""

    def __init__(self, app: ASGIApp, requests: Counter[tuple[str, str]]) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count its answer."""

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._requests[endpoint(scope["path"]), str(message["status"])] += 1
            await send(message)

        await self._app(scope, receive, counted)


def endpoint(path: str) -> str:
    """The endpoint that a path belongs to, in a word; there are few of them, whatever the path."""
    _, found, name = path.partition("/debug/pprof/")
    if found:
        return name if name in endpoint_names() else "other" if name else "index"
    if path == "/":
        return "page"
    first = path.removeprefix("/").partition("/")[0]
    return first if first in ("api", "assets", "healthz", "metrics", "readyz") else "other"


class Build(Collector):
    """Which ebpfprof this is, and on which Python it runs."""

    def collect(self) -> Iterable[Metric]:
        """The one metric."""
        version = {"version": ebpfprof.__version__, "python_version": platform.python_version()}
        yield InfoMetricFamily("ebpfprof_build", "Versions of ebpfprof and its Python.", version)


class _Sums(Collector):
    """The sums of the processes, as of their last windows."""

    def __init__(
        self, manager: Manager, recorders: FlightRecorders, answered: Counter[tuple[str, str]]
    ) -> None:
        self._manager, self._recorders = manager, recorders
        self._answered = answered
        self._losses: dict[RecordedProcess, Sequence[Loss]] = {}
        self._overheads: dict[RecordedProcess, Overhead] = {}

    def read(self, processes: Sequence[RecordedProcess]) -> None:
        """Read from the kernel what was lost and what it cost. Blocks for a moment."""
        live = self._manager.live
        known, self._overheads = self._overheads, {}
        lost, self._losses = self._losses, {}
        for process in processes:
            self._losses[process] = lost.get(process, ())
            if process in known:
                self._overheads[process] = known[process]
            if process.target:
                self._losses[process] = live.losses(process.target)
                with suppress(TargetGone):  # what it cost until then is known
                    now = live.overhead(process.target)
                    # To Prometheus, a counter that falls has been reset; an estimate may fall.
                    before = known.get(process, now)
                    self._overheads[process] = max(now, before, key=lambda row: row.ns)

    def collect(self) -> Iterable[Metric]:
        targets = GaugeMetricFamily(
            "ebpfprof_target_recording",
            "Whether probes are attached to a process.",
            labels=_OF_PROCESS,
        )
        events = CounterMetricFamily(
            "ebpfprof_events", "Events recorded, by kind of profile.", labels=_OF_KIND
        )
        times = {
            kind.metric.name: CounterMetricFamily(
                kind.metric.name,
                kind.metric.help,
                labels=_OF_KIND if kind.metric.is_shared else _OF_PROCESS,
                unit="seconds",
            )
            for kind in kinds()
            if kind.metric
        }
        overheads = CounterMetricFamily(
            "ebpfprof_target_overhead_seconds",
            "Estimated CPU time that recording cost a process.",
            labels=_OF_PROCESS,
            unit="seconds",
        )
        lengths = length_family(_OF_KIND)
        for process in self._manager.processes:
            of_process = (str(process.pid), process.name)
            for name, waits in list(process.history.lengths.items()):
                add_lengths(lengths, (*of_process, name), waits)
            if process.ending is None:
                targets.add_metric(of_process, float(process.is_recording))
            of_trace_ns = self._recorders.lost_ns(process)
            if (overhead := self._overheads.get(process)) or of_trace_ns:
                of_profiles_ns = overhead.ns if overhead else 0.0
                overheads.add_metric(of_process, (of_profiles_ns + of_trace_ns) / 1e9)
            for kind in kinds():
                if (sums := process.history.totals.get(kind.name)) is None:
                    continue
                events.add_metric((*of_process, kind.name), sums[0])
                if kind.metric:
                    labels = (*of_process, kind.name) if kind.metric.is_shared else of_process
                    times[kind.metric.name].add_metric(labels, sums[1] / 1e9)
        return targets, events, *times.values(), lengths, overheads, self._lost(), self._requests()

    def _lost(self) -> Metric:
        losses = CounterMetricFamily(
            "ebpfprof_losses",
            "What could not be recorded of a process, by reason.",
            labels=(*_OF_PROCESS, "reason"),
        )
        for process, lost in self._losses.items():
            counts = dict.fromkeys((name for name, _ in loss_kinds()), 0)
            for loss in lost:
                counts[loss.name] = counts.get(loss.name, 0) + loss.count
            for name, count in counts.items():
                losses.add_metric((str(process.pid), process.name, name), count)
        return losses

    def _requests(self) -> Metric:
        requests = CounterMetricFamily(
            "ebpfprof_requests",
            "Requests answered, by endpoint and status.",
            labels=("endpoint", "code"),
        )
        for labels, count in sorted(self._answered.items()):
            requests.add_metric(labels, count)
        return requests


class _Goroutines(Collector):
    """How many goroutines processes have, hang and leak, of those that are watched.

    Numbers of a process only: a series for each stack would be as many as there are lines of code,
    and others after each release. The page has the stacks.
    """

    def __init__(self, manager: Manager, watches: GoroutineWatches) -> None:
        self._manager, self._watches = manager, watches

    def collect(self) -> Iterable[Metric]:
        every = GaugeMetricFamily(
            "ebpfprof_target_goroutines",
            "Goroutines in the last sample, of watched processes.",
            labels=_OF_PROCESS,
        )
        found = GaugeMetricFamily(
            "ebpfprof_target_goroutines_suspect",
            "Goroutines that hang in locks or sends, are deadlocked, missed a wake, are asleep "
            "with all others, or may leak.",
            labels=(*_OF_PROCESS, "reason"),
        )
        for process in self._manager.processes:
            if (known := self._watches.known(process)) is None:
                continue
            of_process = (str(process.pid), process.name)
            every.add_metric(of_process, known.goroutines)
            sums = {
                "hanging": sum(group.count for group in known.hanging),
                **_stuck(known.stuck),
                "leaking": sum(count for _, count in known.leaks),
            }
            for reason, count in sums.items():
                found.add_metric((*of_process, reason), count)
        return every, found


def _stuck(found: Iterable[Stuck]) -> dict[str, int]:
    """How many goroutines are in findings of each kind."""
    sums = dict.fromkeys(_STUCK.values(), 0)
    for stuck in found:
        sums[_STUCK[type(stuck)]] += len(stuck.goroutines)
    return sums
