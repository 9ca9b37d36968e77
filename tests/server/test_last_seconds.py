"""`serve --last`: the last seconds of an execution trace of real programs."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from tests.kernel.kernel_state import await_no_probes, descendants, has_probes
from tests.kernel.programs import NEWEST, program
from tests.kernel.unharmed import await_ended
from tests.server.serving import DEADLINE_S, Answer, Server, await_probes
from tests.targets_run import Target
from tests.toolchains import toolchain

URL = "/debug/pprof/trace"
STATES = re.compile(r" StateTransition Time=(\d+) ")
KEPT_S = 0.5
MS = 1_000_000
OPTIONS = ("--profile", "goroutine", "--last", f"{KEPT_S:g}s")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A program whose goroutines hand locks over all the time."""
    with Target.start(program("traced")) as running:
        running.ask(f"trace {tmp_path_factory.mktemp('traced') / 'unused'} locks", "begun")
        running.ask("end", "ended")
        yield running
        running.kill()


@pytest.fixture(scope="module")
def server(target: Target) -> Iterator[Server]:
    with Server("--pid", str(target.pid), *OPTIONS) as running:
        assert running.ready
        yield running


def times(answer: Answer, folder: Path) -> list[int]:
    """When something happened in a trace, in ns, by Go's own tool."""
    assert answer.status == 200, answer.body
    path = folder / "trace"
    path.write_bytes(answer.body)
    text = toolchain(NEWEST).go("tool", "trace", "-d=parsed", path)
    return [int(at) for at in STATES.findall(text)]


def await_said(server: Server, is_there: bool, text: str = "") -> str:
    """What the page says of the last seconds, once they are there, or not."""
    until = monotonic() + DEADLINE_S
    while True:
        (found,) = json.loads(server.get("/api/targets").body)["targets"]
        if found["last"]["is_there"] == is_there and text in found["last"]["says"]:
            return str(found["last"]["says"])
        assert monotonic() < until, found
        sleep(0.05)


def await_some_time(server: Server, folder: Path) -> None:
    """Wait until more than a millisecond is kept."""
    until = monotonic() + DEADLINE_S
    while (
        not (found := times(server.get(f"{URL}?last"), folder)) or max(found) - min(found) < 2 * MS
    ):
        assert monotonic() < until, found


def test_the_last_seconds_come_as_often_as_one_asks(
    target: Target, server: Server, tmp_path: Path
) -> None:
    await_said(server, is_there=True)
    first = times(server.get(f"{URL}?last"), tmp_path)
    later = first
    while min(later) <= max(first):  # until all that was first is gone
        later = times(server.get(f"{URL}?last=1h"), tmp_path)
    short = times(server.get(f"{URL}?last=100ms"), tmp_path)
    for found, most_s in ((first, KEPT_S), (later, KEPT_S), (short, 0.1)):
        assert 0 < max(found) - min(found) <= most_s * 1e9
    assert max(later) - min(later) > 0.1e9
    assert max(first) < max(later) < max(short)
    assert has_probes(target.pid)


def test_a_file_may_have_any_format_and_a_name_of_its_own(target: Target, server: Server) -> None:
    proto = server.get(f"{URL}?last=200ms&format=perfetto")
    packets = Trace()
    packets.ParseFromString(proto.body)
    assert len(packets.packet) > 100
    page = server.get(f"{URL}?last=200ms&format=html")
    assert b"main.locks" in page.body
    for answer, ending in ((proto, r"perfetto-trace"), (page, r"trace\.html")):
        name = rf'attachment; filename="traced-{target.pid}-\d{{8}}-\d{{6}}\.{ending}"'
        assert re.fullmatch(name, answer.headers["content-disposition"])
        # No browser is to show it as a page of ours: names in it are the program's.
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("last=x", "'x' is no length of time such as 10s, 1m30s or 500ms"),
        ("last=-1s", "'-1s' is no length of time"),
        ("last=0", "'0' is no length of time"),
        ("last=nan", "'nan' is no length of time"),
        ("last=1e999", "'1e999' is no length of time"),
        ("last=%1b[2J", r"'\x1b[2J' is no length of time"),
        (f"last={'1' * 5000}x", f"{'1' * 64}' is no length of time"),
        ("last=1s&seconds=1", "last and seconds params are incompatible"),
        ("last=1s&format=exe", "The format must be one of go, perfetto, html, not 'exe'."),
        ("seconds=1&format=../etc", "The format must be one of go, perfetto, html, not '../etc'."),
    ],
)
def test_what_makes_no_sense_is_refused(server: Server, query: str, said: str) -> None:
    answer = server.get(f"{URL}?{query}")
    assert answer.status == 400
    assert said in answer.body.decode()


def test_head_gives_no_file(server: Server) -> None:
    await_said(server, is_there=True)
    answer = server.get(f"{URL}?last", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")


def test_what_it_costs_is_in_the_metrics(target: Target, server: Server) -> None:
    await_said(server, is_there=True)
    sample = rf'^ebpfprof_target_overhead_seconds_total{{[^}}]*pid="{target.pid}"}} (\S+)$'
    until = monotonic() + DEADLINE_S
    while not (
        found := re.search(sample, server.get("/metrics").body.decode(), re.MULTILINE)
    ) or not float(found[1]):
        assert monotonic() < until
        sleep(0.1)


def test_the_last_seconds_of_a_process_that_ended_are_kept(tmp_path: Path) -> None:
    with Target.start(program("traced")) as target:
        target.ask(f"trace {tmp_path / 'unused'} locks", "begun")
        target.ask("end", "ended")
        with Server("--pid", str(target.pid), *OPTIONS) as server:
            await_said(server, is_there=True)
            await_some_time(server, tmp_path)
            target.kill()
            answer = server.get(f"{URL}?last=1ms")
            found = times(answer, tmp_path)
            assert MS < max(found) - min(found) <= KEPT_S * 1e9  # all that was kept
            again = server.get(f"{URL}?last")
            assert again.body == answer.body
            assert again.headers == {**answer.headers, "date": again.headers["date"]}
            (output,) = json.loads(answer.headers["x-ebpfprof-comments"])
            assert output == f"ended early: process {target.pid} ended"
            assert server.get(f"{URL}?seconds=1").status == 404
            assert b"main.locks" in server.get(f"{URL}?last&format=html").body
            assert descendants(server.pid) == ours(server)
            server.send(signal.SIGTERM)
            assert server.finish() == 0


def ours(server: Server) -> list[int]:
    """The processes that work for the server itself, but for recorders of traces."""
    return [descendant for descendant in descendants(server.pid) if not is_recorder(descendant)]


def is_recorder(pid: int) -> bool:
    return b"served-trace" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.full
def test_a_killed_server_leaves_no_probe() -> None:
    """Also where the environment says what is kept."""
    with (
        Target.start(program("traced")) as target,
        Server(
            *("--pid", str(target.pid), "--profile", "goroutine", "--max-overhead", "3"),
            env={"EBPFPROF_LAST": "5s"},
        ) as server,
    ):
        assert server.ready
        await_probes(target.pid, expected=True)
        recorder = next(
            descendant for descendant in descendants(server.pid) if is_recorder(descendant)
        )
        os.kill(server.pid, signal.SIGKILL)
        await_no_probes(target.pid)
        await_ended(recorder)
