"""The agent on real programs: windows into a folder, reloads, ends, kills."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.handlers import handler_label
from tests.agent.running import RunningAgent, Written, settings
from tests.kernel.kernel_state import await_gone, await_no_probes, bpf_objects, has_probes
from tests.kernel.live_counts import HANDS, count_in
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.packages import monitoring
from tests.targets_run import Target

RENAME = """\
[[rules]]
source = "service"
regex = "(.*)"
target = "service"
replacement = "new-$1"
"""


def started(folder: Path, **env: str) -> Target:
    return Target.start(program("steps"), env={"AGENT_TEST": str(folder), **env})


def hands(folder: Path, windows: list[Written]) -> int:
    """How many waits of main.hand their block profiles have."""
    found = 0
    for window in windows:
        data = (folder / "out" / window.profiles["block"]).read_bytes()
        found += count_in(pprof.decode(data, kind="block"), "main.hand")
    return found


def assert_contiguous(windows: list[Written]) -> None:
    """Each window begins when the one before it ended."""
    times = [window.times for window in windows]
    assert [begin for begin, _ in times[1:]] == [end for _, end in times[:-1]]
    assert all(begin < end for begin, end in times)


def test_services_are_recorded_without_a_gap_over_a_reload(tmp_path: Path) -> None:
    with (
        started(tmp_path, OTEL_SERVICE_NAME="till") as till,
        started(tmp_path) as steps,
        started(tmp_path, EBPFPROF="off") as private,
        RunningAgent(tmp_path, settings(tmp_path)) as agent,
    ):
        for service in ("till", "steps"):
            agent.await_windows(1, service)
        for _ in range(3):
            till.ask("hand", "done")
        steps.ask("hand", "done")
        agent.await_windows(3, "till")
        agent.reload(settings(tmp_path, RENAME, max_overhead=1))
        agent.await_said(
            "The configuration was reloaded; restart the agent to change max_overhead."
        )
        till.ask("hand", "done")
        with started(tmp_path, OTEL_SERVICE_NAME="late") as late:
            agent.await_windows(1, "new-late")
            late.ask("hand", "done")
            agent.await_windows(2, "new-late")
        agent.reload("window = 0")
        agent.await_said("The configuration is unchanged: " + str(agent.config) + ":1: window ")
        agent.await_windows(2, "new-till")
        assert not has_probes(private.pid)
        assert agent.end() == 0
        assert not any(has_probes(each.pid) for each in (till, steps))
        windows = agent.windows()
        of = {each.pid: [w for w in windows if w.pid == each.pid] for each in (till, steps, late)}
        for each in of.values():
            assert_contiguous(each)
        assert hands(tmp_path, of[till.pid]) == 4 * HANDS
        assert hands(tmp_path, of[steps.pid]) == HANDS
        assert hands(tmp_path, of[late.pid]) == HANDS
        assert [w.service for w in of[till.pid]] == sorted(
            (w.service for w in of[till.pid]), reverse=True
        )
        assert {w.pid for w in windows} == {till.pid, steps.pid, late.pid}
        assert {kind for w in of[till.pid] for kind in w.profiles} == {
            "block",
            "mutex",
            "cpu",
            "goroutine",
        }


def test_samples_have_the_handlers_of_a_service_if_it_is_asked_for(tmp_path: Path) -> None:
    """Without routes, which become known later: a backend would have two series of a handler."""
    with (
        Target.start(program("routes"), env={"AGENT_TEST": str(tmp_path)}) as routes,
        RunningAgent(tmp_path, settings(tmp_path, by_handler=True)) as agent,
    ):
        agent.await_windows(1, "routes")
        routes.ask("go 5 2", "done")
        agent.await_windows(len(agent.windows()) + 2, "routes")
        assert agent.end() == 0
        files = [tmp_path / "out" / window.profiles["block"] for window in agent.windows()]
        routes.kill()
    profiles = [pprof.decode(file.read_bytes(), kind="block") for file in files]
    names = {handler_label(sample) for profile in profiles for sample in profile.samples}
    assert {f"main.route{number:02d}" for number in range(20)} <= names
    assert not any(": " in name for name in names if name)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket like systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.settimeout(60)
        yield made


def notified(manager: socket.socket, line: str) -> str:
    """The next message to systemd that has this line."""
    while line not in (text := manager.recv(4096).decode()).splitlines():
        pass
    return text


def _with_ring(folder: Path, **more: object) -> str:
    """Settings with estimated delays, a ring, and metrics of services."""
    text = settings(folder, max_overhead=1, metrics_services=3, **more)
    return text.replace("enabled = false", f"path = {json.dumps(str(folder / 'ring'))}")


def _answered(text: str) -> set[str]:
    """The names of the metrics in an answer, also of those that have no value yet."""
    names = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            names.add(name)
            # With the name of OpenMetrics, in which a counter's has no suffix.
            names.add(f"{name.removesuffix('_total')}_total" if kind == "counter" else name)
            if kind == "histogram":
                names.update(f"{name}_{part}" for part in ("bucket", "count", "sum"))
    return names


def test_systemd_and_prometheus_are_reported(tmp_path: Path, manager: socket.socket) -> None:
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
    with (
        started(tmp_path, OTEL_SERVICE_NAME="till") as steps,
        RunningAgent(tmp_path, _with_ring(tmp_path, min_age="1h"), env) as agent,
    ):
        assert "STATUS=0 processes recorded" in notified(manager, "READY=1")
        notified(manager, "WATCHDOG=1")
        assert agent.get("/healthz").body == b"ok\n"
        assert agent.get("/readyz").status == 200
        # A process that has not lived long enough costs only a check of its age.
        assert agent.metric("ebpfprof_agent_processes", state="young") >= 1
        assert agent.metric("ebpfprof_agent_processes", state="recorded") == 0
        assert not has_probes(steps.pid)
        agent.reload(_with_ring(tmp_path, max_memory="64MiB"))
        assert "MONOTONIC_USEC=" in notified(manager, "RELOADING=1")
        notified(manager, "READY=1")
        agent.await_windows(1)
        steps.ask("hand", "done")
        agent.await_windows(3)
        text = agent.get("/metrics").body.decode()
        assert agent.metric("ebpfprof_agent_processes", state="recorded") == 1
        assert agent.metric("ebpfprof_agent_events_total", kind="block") >= HANDS
        assert agent.metric("ebpfprof_sink_sent_total", sink="folder") >= 3
        assert "could not deliver" not in agent.said
        assert agent.metric("ebpfprof_agent_memory_bytes", of="limit") == 64 << 20
        assert agent.metric("ebpfprof_agent_losses_total", reason="waits_full") == 0
        till = {"namespace": "", "service": "till"}
        assert agent.metric("ebpfprof_delay_seconds_total", kind="block", **till) > 0
        # Of the three windows the first may be short.
        assert agent.metric("ebpfprof_service_recorded_seconds_total", **till) >= 1
        assert monitoring.asked() - _answered(text) == set()
        assert 'pid="' not in text
        assert f'"{steps.pid}"' not in text
        agent.reload("x")
        agent.await_said("The configuration is unchanged")
        assert agent.metric("ebpfprof_agent_config_last_reload_successful") == 0
        # Far more memory than 64 MiB was used: fewer are recorded at once, and the log says so.
        agent.await_said("The agent uses ")
        agent.send(signal.SIGTERM)
        notified(manager, "STOPPING=1")
        assert agent.finish() == 0


def test_an_agent_that_is_killed_leaves_no_probe_and_no_lock(tmp_path: Path) -> None:
    text = settings(tmp_path)
    with started(tmp_path) as steps:
        with RunningAgent(tmp_path, text) as agent:
            agent.await_windows(1)
            assert has_probes(steps.pid)
            env = {"RUNTIME_DIRECTORY": str(tmp_path / "run")}
            second = verb("agent", "--config", str(agent.config), env=env)
            assert (second.code, second.stdout) == (1, "")
            assert second.stderr == (
                f"ebpfprof: Another agent, process {agent.pid}, is running on this machine (it "
                f"locks {tmp_path}/run/agent.lock). End it first, or reload its file with SIGHUP.\n"
            )
            objects = bpf_objects(agent.pid)
            assert objects
            agent.send(signal.SIGKILL)
            agent.finish()
            await_gone(objects)
            await_no_probes(steps.pid)
            before = len(agent.windows())
        for each in (tmp_path / "out").glob("*.pb.gz"):
            assert gzip.decompress(each.read_bytes())  # no torn file
        with RunningAgent(tmp_path, text) as agent:
            agent.await_windows(before + 1)
            assert agent.end() == 0
        assert not has_probes(steps.pid)


def test_check_shows_who_would_be_recorded(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(settings(tmp_path, RENAME))
    with (
        started(tmp_path, OTEL_SERVICE_NAME="till", OTEL_RESOURCE_ATTRIBUTES="service.version=v7"),
        started(tmp_path, EBPFPROF="off") as private,
        Target.start(program("steps")) as other,
    ):
        output = verb("agent", "--check", "--config", str(config))
        assert output.code == 0
        rows = {line.split()[0]: line for line in output.stdout.splitlines() if line[:1].isdigit()}
        assert any(
            "new-till" in row and "v7" in row and row.endswith("yes") for row in rows.values()
        )
        assert rows[str(private.pid)].endswith("no: EBPFPROF=off is in its environment")
        assert rows[str(other.pid)].endswith("no: rule 1 drops it")
        assert f"path = {json.dumps(str(tmp_path / 'out'))}" in output.stdout


def test_a_wrong_file_ends_it_before_anything_else(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text("\nkind = ['cpu']\n")
    output = verb("agent", "--config", str(config))
    assert (output.code, output.stdout) == (2, "")
    assert output.stderr == (
        f"ebpfprof: {config}:2: There is no setting 'kind'. Did you mean kinds?\n"
    )
    assert os.listdir(tmp_path) == ["agent.toml"]
