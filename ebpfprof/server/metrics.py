"""What Prometheus asks for: what was recorded, what was lost, what it costs us."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ebpfprof.errors import TargetGone
from ebpfprof.kernel.losses import loss_kinds

if TYPE_CHECKING:
    from ebpfprof.continuous.manager import Recorder
    from ebpfprof.continuous.process import Served
    from ebpfprof.kernel.losses import Loss
    from ebpfprof.overhead.cost import Overhead

_OF_TARGET = ("pid", "command", "kind")
_ENDPOINTS = ("profile", "block", "mutex", "cmdline", "symbol", "delta_block", "delta_mutex")


class Metrics:
    """A registry of its own and the endpoint /metrics."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._registry = CollectorRegistry()
        self.requests: Counter[tuple[str, str]] = Counter()
        """How many were answered, by endpoint and status."""
        self._sums = _Sums(recorder, self.requests)
        self._registry.register(self._sums)
        ProcessCollector(namespace="ebpfprof", registry=self._registry)

    async def __call__(self, request: Request) -> Response:
        """The metrics as text. Asking for them has nothing recorded."""
        await asyncio.to_thread(self._sums.read, list(self._recorder.served))
        headers = {"X-Content-Type-Options": "nosniff"}
        return Response(generate_latest(self._registry), 200, headers, CONTENT_TYPE_LATEST)


class Counted:
    """Middleware (ASGI) that counts what was answered."""

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
    """A word for what a path asks for; the words are few, whatever is asked."""
    _, found, name = path.partition("/debug/pprof/")
    if found:
        return name if name in _ENDPOINTS else "other" if name else "index"
    if path == "/":
        return "page"
    first = path.removeprefix("/").partition("/")[0]
    return first if first in ("api", "assets", "metrics") else "other"


class _Sums(Collector):
    """The sums of the targets, as of their last windows."""

    def __init__(self, recorder: Recorder, answered: Counter[tuple[str, str]]) -> None:
        self._recorder = recorder
        self._answered = answered
        self._losses: list[Loss] = []
        self._overheads: dict[Served, Overhead] = {}

    def read(self, all_served: Sequence[Served]) -> None:
        """Read from the kernel what was lost, and what it cost: in a thread, it takes a moment."""
        live = self._recorder.live
        self._losses = list(live.losses())
        known, self._overheads = self._overheads, {}
        for served in all_served:
            if served in known:
                self._overheads[served] = known[served]
            if served.live:
                with suppress(TargetGone):  # what it cost until then is known
                    now = live.overhead(served.live)
                    # A counter that falls has begun anew, to Prometheus; an estimate may fall.
                    before = known.get(served, now)
                    self._overheads[served] = max(now, before, key=lambda each: each.ns)

    def collect(self) -> Iterable[Metric]:
        targets = GaugeMetricFamily(
            "ebpfprof_target_recording",
            "Whether the probes are in a process.",
            labels=("pid", "command"),
        )
        events = CounterMetricFamily(
            "ebpfprof_events",
            "Events recorded: contentions, releases, CPU samples.",
            labels=_OF_TARGET,
        )
        delay = CounterMetricFamily(
            "ebpfprof_delay_seconds",
            "Time that goroutines waited (block), or made others wait (mutex).",
            labels=_OF_TARGET,
        )
        cpu = CounterMetricFamily(
            "ebpfprof_cpu_seconds", "CPU time in samples.", labels=_OF_TARGET[:2]
        )
        lost = CounterMetricFamily(
            "ebpfprof_target_overhead_seconds",
            "CPU time that recording took a process, estimated.",
            labels=_OF_TARGET[:2],
        )
        for served in self._recorder.served:
            of_target = (str(served.pid), served.name)
            if served.ending is None:
                targets.add_metric(of_target, float(served.is_recording))
            if overhead := self._overheads.get(served):
                lost.add_metric(of_target, overhead.ns / 1e9)
            for kind, (count, value_ns) in served.windows.totals.items():
                events.add_metric((*of_target, kind), count)
                if kind == "cpu":
                    cpu.add_metric(of_target, value_ns / 1e9)
                else:
                    delay.add_metric((*of_target, kind), value_ns / 1e9)
        losses = CounterMetricFamily(
            "ebpfprof_losses", "What could not be recorded, by reason.", labels=("reason",)
        )
        counts = dict.fromkeys((name for name, _ in loss_kinds()), 0)
        for loss in self._losses:
            counts[loss.name] = counts.get(loss.name, 0) + loss.count
        for name, count in counts.items():
            losses.add_metric((name,), count)
        requests = CounterMetricFamily(
            "ebpfprof_requests",
            "Requests answered, by endpoint and status.",
            labels=("endpoint", "code"),
        )
        for labels, count in sorted(self._answered.items()):
            requests.add_metric(labels, count)
        return targets, events, delay, cpu, lost, losses, requests
