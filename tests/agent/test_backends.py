"""The agent pushes what it records to a real Collector, to Parca, and to a strict Pyroscope.

Each is asked what it has, and that is compared, sample by sample, with the pprof file of the same
window, which is written as `attach` writes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import pytest

from ebpfprof.agent.sinks.otlp import OtlpBackend
from ebpfprof.agent.sinks.remote import WindowPart
from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.registry import kind_named
from tests.agent.running import RunningAgent, Written, settings
from tests.agent.test_agent import hands, started
from tests.backends.building import PROFCHECK, built
from tests.backends.collector import Collector, Samples
from tests.backends.scripted_server import ScriptedServer
from tests.backends.strict_pyroscope import StrictPyroscope
from tests.backends.windows import made_up, window_of
from tests.kernel.live_counts import HANDS

KINDS = ("block", "mutex", "cpu", "goroutine", "wall", "heap")
SERIES = {"cpu": "process_cpu", "heap": "memory"}


def table(kind: str, url: str) -> str:
    return f'[[sinks]]\ntype = "{kind}"\nurl = "{url}"'


def samples_of(profile: Profile, place: int) -> Samples:
    """One value of each stack, in the form in which a Collector's are read."""
    found: Samples = Counter()
    for sample in profile.samples:
        stack = tuple(
            (at.address, tuple((f.function, f.file, f.line, f.start_line) for f in at.frames))
            for at in sample.locations
        )
        labels = ((label.key, label.value, label.unit) for label in sample.labels)
        found[stack, tuple(sorted(labels, key=repr))] += sample.values[place]
    return found


def files(folder: Path, windows: list[Written]) -> Iterator[tuple[Written, str, Profile]]:
    """What a backend must have: of each window, the profiles that have samples."""
    for window in windows:
        for kind, name in window.profiles.items():
            profile = pprof.decode((folder / "out" / name).read_bytes(), kind=kind)
            shown = kind_named(kind).in_tables(profile)
            if shown.samples:
                yield window, kind, shown


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[tuple[Collector, StrictPyroscope, list[Written]]]:
    """Two backends that have what the agent recorded of a program, and its windows."""
    pyroscope = StrictPyroscope()
    with (
        started(tmp_path, OTEL_SERVICE_NAME="till") as till,
        Collector(tmp_path) as collector,
        ScriptedServer(then=pyroscope) as server,
    ):
        tables = (table("otlp", collector.url), table("pyroscope", server.url))
        with RunningAgent(tmp_path, settings(tmp_path, *tables, kinds=KINDS)) as agent:
            agent.await_windows(1)
            till.ask("hand", "done")
            agent.await_windows(3)
            assert agent.end() == 0
            assert "could not deliver" not in agent.said
            yield collector, pyroscope, agent.windows()


def test_backends_have_each_sample_of_each_window(
    recorded: tuple[Collector, StrictPyroscope, list[Written]], tmp_path: Path
) -> None:
    collector, pyroscope, windows = recorded
    assert pyroscope.refused == []
    assert hands(tmp_path, windows) == HANDS
    expected = list(files(tmp_path, windows))
    assert {kind for _, kind, _ in expected} >= {"block", "goroutine", "wall"}
    received = collector.profiles(sum(len(profile.sample_types) for _, _, profile in expected))
    assert len({each.id for each in received}) == len(received)
    taken = 0
    for window, kind, profile in expected:
        name = SERIES.get(kind, kind)
        is_moment = kind_named(kind).is_moment
        time_ns = round(window.times[1] * 1e9) if is_moment else profile.time_ns
        for place, value_type in enumerate(profile.sample_types):
            (found,) = [
                each
                for each in received
                if (each.scope[0], each.time_ns) == (name, time_ns)
                and each.sample_type == (value_type.type, value_type.unit)
            ]
            assert found.samples == samples_of(profile, place)
            period = (profile.period_type.type, profile.period_type.unit, profile.period)
            assert found.period == period
            assert found.duration_ns == (0 if is_moment else profile.duration_ns)
            assert found.attributes.get("pprof.profile.comment") == list(profile.comments)
            assert found.resource["service.name"] == "till"
            assert found.resource["process.runtime.name"] == "go"
            taken += 1
        (pushed,) = [
            each.profile
            for each in pyroscope.pushed
            if (each.labels["__name__"], each.profile.time_ns) == (name, time_ns)
        ]
        for place in range(len(profile.sample_types)):
            assert samples_of(pushed, place) == samples_of(profile, place)
        part = WindowPart(window_of(window.times[0]), kind, profile)
        assert profcheck(built(PROFCHECK), tmp_path, part) == ""
    assert taken == len(received)
    assert len(pyroscope.pushed) == len(expected)


def test_each_request_is_what_opentelemetry_calls_valid(tmp_path: Path) -> None:
    checker = built(PROFCHECK)
    for kind in ("block", "mutex", "cpu", "goroutine", "wall", "heap"):
        window = window_of(1.7e9)
        for stacks in (1, 2, 500):
            shown = kind_named(kind).in_tables(made_up(kind, 1.7e9, stacks=stacks))
            assert profcheck(checker, tmp_path, WindowPart(window, kind, shown)) == ""


def profcheck(checker: Path, folder: Path, part: WindowPart) -> str:
    """What OpenTelemetry's checker has against a request; "" if it is right."""
    path = folder / "request.bin"
    path.write_bytes(OtlpBackend().message(part))
    done = run(
        [checker, "-check-dupes", "-check-orphans", "-check-sample-shapes", path],
        capture_output=True,
        text=True,
    )
    return "" if done.returncode == 0 else done.stdout


def test_the_checker_finds_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "wrong.bin"
    path.write_bytes(b"")
    done = run([built(PROFCHECK), path], capture_output=True, text=True)
    assert done.returncode == 1
    assert "resource profiles are empty" in done.stdout
