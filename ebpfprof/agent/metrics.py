"""The agent's Prometheus metrics: no label names a process, so there are few series.

Labels name services only if the settings allow it, up to a number.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from ebpfprof.kernel.losses import loss_kinds
from ebpfprof.profilers.registry import kinds
from ebpfprof.server.length_metrics import add_lengths, length_family
from ebpfprof.server.metrics import Build
from ebpfprof.system.own_usage import own_usage

if TYPE_CHECKING:
    from ebpfprof.agent.service import Agent
    from ebpfprof.ring.writer import RingState

_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Vary": "Accept"}
_STATES: Final = (
    *("recorded", "starting", "budget", "places", "young"),
    *("failed", "unsupported", "opted-out", "rules"),
)
_OF_SERVICE: Final = ("service", "namespace")


class AgentMetrics:
    """The endpoint /metrics."""

    def __init__(self, agent: Agent) -> None:
        self._registry = CollectorRegistry()
        for collector in (_Figures(agent), Build()):
            self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        self._executor = ThreadPoolExecutor(1, "metrics")

    async def __call__(self, request: Request) -> Response:
        """The metrics as text, in the format that the client takes."""
        encoder, content_type = choose_encoder(request.headers.get("accept", ""))
        # In its own thread: those for recording may all be busy.
        loop = asyncio.get_running_loop()
        text = await loop.run_in_executor(self._executor, encoder, self._registry)
        return Response(text, 200, _HEADERS, content_type)


class _Figures(Collector):
    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def collect(self) -> Iterable[Metric]:
        yield from self._processes()
        yield from self._recordings()
        yield from self._services()
        yield self._findings()
        yield from self._costs()
        yield from self._pod_sources()
        yield from self._sinks()
        yield GaugeMetricFamily(
            "ebpfprof_agent_config_last_reload_successful",
            "Whether the last reload of the file succeeded.",
            float(self._agent.is_config_right),
        )

    def _processes(self) -> Iterable[Metric]:
        agent = self._agent
        counts = Counter(agent.rounds.waiting.values())
        counts.update(agent.roster.refusals())
        counts.update(
            recorded=agent.rounds.recorded,
            starting=agent.rounds.starting,
            young=agent.roster.too_young,
        )
        states = GaugeMetricFamily(
            "ebpfprof_agent_processes",
            "Go processes by state; young: processes of any program.",
            labels=("state",),
        )
        for state in _STATES:
            states.add_metric((state,), counts[state])
        yield states
        unwatched = CounterMetricFamily(
            "ebpfprof_agent_unwatched_seconds",
            "Time in which Go processes were not recorded, by reason, summed over processes.",
            labels=("reason",),
            unit="seconds",
        )
        for reason, seconds in sorted(agent.rounds.figures.unwatched_s.items()):
            unwatched.add_metric((reason,), seconds)
        yield unwatched

    def _recordings(self) -> Iterable[Metric]:
        figures = self._agent.rounds.figures
        yield CounterMetricFamily("ebpfprof_agent_rounds", "Rounds that ended.", figures.rounds)
        yield CounterMetricFamily(
            "ebpfprof_agent_windows", "Profiles that were passed to sinks.", figures.windows
        )
        yield CounterMetricFamily(
            "ebpfprof_agent_explanations", "Explanations of processes.", figures.explanations
        )
        events = CounterMetricFamily(
            "ebpfprof_agent_events", "Events recorded, by kind of profile.", labels=("kind",)
        )
        times = CounterMetricFamily(
            "ebpfprof_agent_recorded_seconds",
            "Time that goroutines waited or processors were used, by kind of profile.",
            labels=("kind",),
            unit="seconds",
        )
        for kind in kinds():
            if kind.name in figures.events:
                events.add_metric((kind.name,), figures.events[kind.name])
                if kind.metric:
                    times.add_metric((kind.name,), figures.amounts[kind.name] / 1e9)
        losses = CounterMetricFamily(
            "ebpfprof_agent_losses",
            "Lost events until the last round ended, by reason.",
            labels=("reason",),
        )
        for name in {name: None for name, _ in loss_kinds()} | dict.fromkeys(figures.losses):
            losses.add_metric((name,), figures.losses[name])
        yield from (events, times, losses)

    def _services(self) -> Iterable[Metric]:
        """Waits and CPU time of services, for as many services as the settings allow."""
        declared = {kind.name: kind.metric for kind in kinds() if kind.metric}
        times = {
            metric.name: CounterMetricFamily(
                metric.name,
                metric.help,
                labels=(*_OF_SERVICE, "kind") if metric.is_shared else _OF_SERVICE,
                unit="seconds",
            )
            for metric in declared.values()
        }
        recorded = CounterMetricFamily(
            "ebpfprof_service_recorded_seconds",
            "How long processes of a service were recorded, summed over processes.",
            labels=_OF_SERVICE,
            unit="seconds",
        )
        lengths = length_family((*_OF_SERVICE, "kind"))
        for service, sums in self._agent.rounds.figures.of_services().items():
            recorded.add_metric(service, sums.recorded_s)
            for kind, waits in sums.lengths.items():
                add_lengths(lengths, (*service, kind), waits)
            for kind, amount_ns in sums.amounts_ns.items():
                labels = (*service, kind) if declared[kind].is_shared else service
                times[declared[kind].name].add_metric(labels, amount_ns / 1e9)
        yield from (family for family in (*times.values(), lengths, recorded) if family.samples)

    def _findings(self) -> Metric:
        """What is wrong with services, for as many services as the settings allow."""
        family = GaugeMetricFamily(
            "ebpfprof_service_finding",
            "What is wrong with a process of a service, by its explanations: 1.",
            labels=(*_OF_SERVICE, "kind"),
        )
        names = self._agent.rounds.figures.name_of
        lasting = {
            (*name, finding.kind)
            for latest in self._agent.explaining.findings
            if (name := names(latest.identity))
            for finding in latest.findings
        }
        for labels in sorted(lasting):
            family.add_metric(labels, 1)
        return family

    def _costs(self) -> Iterable[Metric]:
        rounds = self._agent.rounds
        usage = own_usage()
        yield CounterMetricFamily(
            "ebpfprof_agent_cpu_seconds",
            "CPU time of the agent and its children.",
            usage.cpu_s,
            unit="seconds",
        )
        memory = GaugeMetricFamily(
            "ebpfprof_agent_memory_bytes",
            "Memory of the agent and its children (Pss), and max_memory.",
            labels=("of",),
            unit="bytes",
        )
        memory.add_metric(("agent",), usage.memory_bytes)
        memory.add_metric(("limit",), rounds.settings.max_memory)
        yield memory
        share = GaugeMetricFamily(
            "ebpfprof_agent_node_overhead_ratio",
            "The share of the machine's CPU time that the last round used, and its limit.",
            labels=("of",),
            unit="ratio",
        )
        share.add_metric(("targets",), rounds.figures.spent_on_targets / rounds.processors)
        share.add_metric(("agent",), rounds.figures.spent_on_self / rounds.processors)
        share.add_metric(("limit",), rounds.income / rounds.processors)
        yield share

    def _pod_sources(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "ebpfprof_pod_source_requests",
            "Requests for pods to the container runtime or the API server, by outcome.",
            labels=("source", "outcome"),
        )
        pods = GaugeMetricFamily(
            "ebpfprof_pod_source_pods",
            "Pods of this node in the last response.",
            labels=("source",),
        )
        for source in self._agent.pods.sources:
            requests.add_metric((source.source, "answered"), source.counts.answered)
            requests.add_metric((source.source, "failed"), source.counts.failed)
            pods.add_metric((source.source,), source.counts.pods)
        yield from (requests, pods)

    def _sinks(self) -> Iterable[Metric]:
        sent = CounterMetricFamily(
            "ebpfprof_sink_sent", "Windows that were delivered.", labels=("sink",)
        )
        retried = CounterMetricFamily(
            "ebpfprof_sink_retries", "Failed attempts to deliver.", labels=("sink",)
        )
        dropped = CounterMetricFamily(
            "ebpfprof_sink_dropped", "Windows dropped, by reason.", labels=("sink", "reason")
        )
        waiting = GaugeMetricFamily(
            "ebpfprof_sink_waiting", "Windows that are queued for a sink.", labels=("sink",)
        )
        size = GaugeMetricFamily(
            "ebpfprof_sink_waiting_bytes", "Their approximate size.", labels=("sink",), unit="bytes"
        )
        for sink in self._agent.sinks.all:
            counters = sink.counters()
            sent.add_metric((sink.name,), counters.sent)
            retried.add_metric((sink.name,), counters.retried)
            for reason, count in sorted(counters.dropped.items()):
                dropped.add_metric((sink.name, reason), count)
            waiting.add_metric((sink.name,), counters.waiting)
            size.add_metric((sink.name,), counters.waiting_bytes)
        yield from (sent, retried, dropped, waiting, size)
        if (ring := self._agent.sinks.ring_state()) is not None:
            yield from self._of_ring(ring)

    def _of_ring(self, ring: RingState) -> Iterable[Metric]:
        for name, text, value in (
            ("ebpfprof_ring_bytes", "Size of the local ring.", ring.bytes),
            ("ebpfprof_ring_files", "Files in the local ring.", ring.files),
            ("ebpfprof_ring_oldest_timestamp_seconds", "Time of its oldest window.", ring.oldest_s),
            ("ebpfprof_ring_newest_timestamp_seconds", "Time of its newest window.", ring.newest_s),
        ):
            yield GaugeMetricFamily(name, text, value)
        for name, text, counts in (
            ("ebpfprof_ring_pruned", "Files that were removed, by reason.", ring.pruned),
            ("ebpfprof_ring_dropped", "Windows that were not written, by reason.", ring.dropped),
        ):
            family = CounterMetricFamily(name, text, labels=("reason",))
            for reason, count in sorted(counts.items()):
                family.add_metric((reason,), count)
            yield family
        yield CounterMetricFamily(
            "ebpfprof_ring_notes_lost",
            "Notes of findings, ends and unrecorded times that were not written.",
            ring.unnoted,
        )
