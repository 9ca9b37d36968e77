"""What Prometheus scrapes, over a fake: recordings, losses, costs, this process itself."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

import ebpfprof
from ebpfprof.kernel.losses import loss_kinds
from ebpfprof.profile.length_counts import BOUNDS_NS, known_waits
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram
from ebpfprof.server.metrics import endpoint
from tests.continuous.fakes import PID, FakeTarget
from tests.continuous.loops import run, until
from tests.server.fakes import Service, recorded

pytestmark = pytest.mark.usefixtures("checks_often")

# What dashboards of any exporter look for; a parser leaves out _total.
STANDARD = {
    "process_cpu_seconds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_open_fds",
}


def test_metrics_describe_the_recordings() -> None:
    async def work() -> None:
        service, target = await recorded(3, 2)
        (name, _), *_ = loss_kinds()
        service.live.lost = [Loss(name, "lost", 2), Loss(name, "lost", 5)]
        for _ in range(3):
            await service.client.ask("/debug/pprof/nonsense")
        text = (await service.client.ask("/metrics")).body.decode()
        found = re.findall(r"^(ebpfprof_[^ #]+) (\S+)$", text, re.MULTILINE)
        values: dict[str, str] = dict(found)

        def of(name: str, kind: str = "") -> str:
            labels = 'command="shop"' + (f',kind="{kind}"' if kind else "") + f',pid="{PID}"'
            return values[f"ebpfprof_{name}{{{labels}}}"]

        assert of("target_recording") == "0.0"
        assert of("events_total", "block") == "6.0"
        assert of("events_total", "cpu") == "6.0"
        assert float(of("delay_seconds_total", "mutex")) == 5010e-9
        assert float(of("cpu_seconds_total")) == 5010e-9
        assert float(of("target_overhead_seconds_total")) == target.snapshots > 0
        of_process = f'command="shop",pid="{PID}",reason='
        assert values[f'ebpfprof_losses_total{{{of_process}"{name}"}}'] == "7.0"
        assert values['ebpfprof_requests_total{code="404",endpoint="other"}'] == "3.0"
        assert [each for each in values if "_losses_total" in each] == [
            f'ebpfprof_losses_total{{{of_process}"{name}"}}' for name, _ in loss_kinds()
        ]

    run(work())


def test_lengths_of_waits_are_those_of_the_profiles() -> None:
    async def work() -> None:
        service, _ = await recorded(3, 2, has_lengths=True)
        text = (await service.client.ask("/metrics")).body.decode()
        families = {each.name: each for each in text_string_to_metric_families(text)}
        waits = families["ebpfprof_wait_seconds"].samples
        assert {sample.labels["kind"] for sample in waits} == {"block"}
        (process,) = service.manager.processes
        profiles = [window.profiles["block"] for window in process.history.windows]
        known = [known_waits(profile) for profile in profiles]
        lengths = WaitHistogram.together(each.lengths for each in known)
        assert lengths.total >= 3
        for sample in waits:
            value = {
                "ebpfprof_wait_seconds_count": lengths.total,
                "ebpfprof_wait_seconds_sum": sum(each.ns for each in known) / 1e9,
            }.get(sample.name)
            if value is None:
                bound_ns = float(sample.labels["le"]) * 1e9
                value = sum(n for b, n in lengths.rows() if SCALE.lower_ns(b) < bound_ns)
            assert sample.value == pytest.approx(value)
        assert len(waits) == len(BOUNDS_NS) + 3

    run(work())


def test_costs_are_kept_for_served_processes_only() -> None:
    async def work() -> None:
        service, target = await recorded(1)
        (process,) = service.manager.processes
        name = f'ebpfprof_target_overhead_seconds_total{{command="shop",pid="{PID}"}}'

        async def overhead_lines() -> str:
            text = (await service.client.ask("/metrics")).body.decode()
            return "".join(line for line in text.splitlines() if line.startswith(name))

        before = await overhead_lines()
        assert before
        target.snapshots -= 1  # an estimate may fall, a counter must not
        assert await overhead_lines() == before
        target.is_removed = True  # what it cost until then is still known
        assert await overhead_lines() == before
        del service.manager._processes[PID]
        assert await overhead_lines() == ""
        process.target = None
        service.manager._processes[PID] = replace(process)  # another one, with the same pid
        assert await overhead_lines() == ""

    run(work())


OPEN_METRICS = {"accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}


@pytest.mark.parametrize("accept", [{}, OPEN_METRICS], ids=["prometheus", "openmetrics"])
def test_prometheus_reads_the_metrics(accept: dict[str, str]) -> None:
    """By the rules of both text formats and of the names that it asks for (promtool check)."""

    async def work() -> None:
        odd = 'a "b" \\n {c="d"} \\'
        service = await Service.of(FakeTarget(PID, name=odd), FakeTarget(PID + 1), continuous=True)
        await until(lambda: all(each.is_recording for each in service.manager.processes))
        for process in service.manager.processes:
            await service.manager.readings.end_window(process)
        await service.client.ask("/metrics")
        answer = await service.client.ask("/metrics", headers=accept)
        assert answer.headers["x-content-type-options"] == "nosniff"
        text = answer.body.decode()
        if accept:
            assert answer.headers["content-type"].startswith("application/openmetrics-text;")
            assert text.endswith("# EOF\n")
            families = list(open_metrics(text))  # type: ignore[no-untyped-call]  # it has no types
        else:
            assert answer.headers["content-type"].startswith("text/plain; version=")
            families = list(text_string_to_metric_families(text))
        samples = [sample for family in families for sample in family.samples]
        assert len({(s.name, *sorted(s.labels.items())) for s in samples}) == len(samples)
        assert len({family.name for family in families}) == len(families)
        assert {family.name for family in families} >= STANDARD
        for family in families:
            assert re.fullmatch(r"(ebpfprof|process|go_memstats|go_gc)_[a-z_]+", family.name)
            # Those of the process are the library's own.
            assert family.documentation.endswith(".")
            if family.name.startswith("go_"):
                continue  # the names and types of Go's own collector
            assert family.type in ("counter", "gauge", "histogram", "info")
            unit = next((each for each in ("seconds", "bytes") if each in family.name), "")
            assert not unit or family.name.endswith((f"_{unit}", "_time_seconds")), family.name
            if accept and family.name.startswith("ebpfprof_"):
                assert family.unit == unit, family.name
            for sample in family.samples:
                assert sample.name.endswith("_total") == (family.type == "counter")
                assert 0 <= sample.value < float("inf")
        commands = {s.labels["pid"]: s.labels["command"] for s in samples if "pid" in s.labels}
        assert commands == {str(PID): odd, str(PID + 1): "shop"}
        await service.manager.stop()

    run(work())


def test_the_build_is_reported() -> None:
    async def work() -> None:
        service = await Service.of()
        text = (await service.client.ask("/metrics")).body.decode()
        (line,) = re.findall(r"^ebpfprof_build_info\{(.*)\} 1\.0$", text, re.MULTILINE)
        assert f'version="{ebpfprof.__version__}"' in line

    run(work())


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/", "page"),
        ("/metrics", "metrics"),
        ("/api/targets/1/timeline", "api"),
        ("/assets/x", "assets"),
        ("/debug/pprof/", "index"),
        ("/debug/pprof/block", "block"),
        ("/proc/1/debug/pprof/profile", "profile"),
        ("/debug/pprof/heap", "heap"),
        ("/debug/pprof/nonsense", "other"),
        ("/debug/pprof", "other"),
        ("/healthz", "healthz"),
        ("/readyz", "readyz"),
        ("/anything\n", "other"),
        ("", "other"),
        ("*", "other"),
    ],
)
def test_metrics_name_endpoints_by_few_words(path: str, word: str) -> None:
    assert endpoint(path) == word
