"""`ebpfprof dump`: all goroutines of a running program, as Go's own traceback has them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.goroutines.frames import StackFrames
from ebpfprof.goruntime.waits.dump import dump
from ebpfprof.goruntime.waits.standing import DUMPED
from ebpfprof.process.process import Target as Process
from symbolizer.codeanalysis.globals import allgs_address
from tests.builds import NEWEST, builds, versions
from tests.go_target import inspect
from tests.kernel.acting_process import ActingProcess, sample_begun
from tests.kernel.parked_program import running
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.targets_run import Target

HOUR_NS = 3_600_000_000_000


def dumped(*arguments: str) -> dict[str, Any]:
    output = verb("dump", "--json", *arguments)
    assert output.code == ExitCode.OK, output.stderr
    found: dict[str, Any] = json.loads(output.stdout)
    return found


def functions(goroutine: Mapping[str, Any]) -> list[str]:
    return [frame["function"] for frame in goroutine["stack"]]


def innermost_of_main(goroutine: Mapping[str, Any]) -> str:
    return next((name[5:] for name in functions(goroutine) if name.startswith("main.")), "")


@pytest.mark.parametrize(("version", "mode"), builds())
def test_states_and_stacks_equal_gos_own_traceback(version: str, mode: str) -> None:
    with running(version, mode) as run:
        found = {each["id"]: each for each in dumped("--pid", str(run.target.pid))["goroutines"]}
        for name, report in run.reports.items():
            for goid in report["goids"]:
                each = found.pop(goid)
                assert each["state"] == report["state"], (name, each)
                innermost = innermost_of_main(each)
                assert innermost == name or (name + innermost).startswith("silent"), (name, each)
                assert each["stack_is_whole"]
                assert each["did_not_move"]
                assert each["created_by"]["function"] == "main.start"
                assert functions(each)[-1] == "main.start.func1"
        assert "runtime.main" in {functions(each)[-1] for each in found.values() if each["stack"]}
        run.target.kill()


@pytest.mark.parametrize("version", versions())
def test_channels_have_their_contents_and_waiters(version: str) -> None:
    with running(version, "plain") as run:
        found = dumped("--pid", str(run.target.pid))["goroutines"]
        text = verb("dump", "--pid", str(run.target.pid), "--apart", "0").stdout
        run.target.kill()
    channels = {
        name: [each["channels"] for each in found if innermost_of_main(each) == name]
        for name in ("send", "receive", "receiveOK", "selectTwo", "lockMutex")
    }
    full = channels["send"][0][0]
    assert channels["send"] == [[full]] * 7
    assert (full["length"], full["capacity"], full["closed"]) == (1, 1, False)
    (empty,) = {row[0]["address"] for row in channels["receive"]}
    assert {row[0]["address"] for row in channels["receiveOK"]} == {empty}
    assert {len(row) for row in channels["selectTwo"]} == {2}
    assert all(empty in {each["address"] for each in row} for row in channels["selectTwo"])
    assert channels["lockMutex"] == [[], [], []]
    assert "7 goroutines: chan send" in text
    assert f"for the channel at {full['address']}, 1 of 1 values in it\n" in text
    assert f"for the channel at {empty}, " in text


@pytest.mark.full
def test_the_text_shows_groups_and_counts() -> None:
    with running(NEWEST, "plain") as run:
        output = verb("dump", "--pid", str(run.target.pid))
        expected = {
            name: len(report["goids"])
            for name, report in run.reports.items()
            if not name.startswith("silent")  # closures have other names
        }
        run.target.kill()
    assert output.code == ExitCode.OK, output.stderr
    groups = output.stdout.split("\n\n")
    assert f"goroutines of process {run.target.pid} (parked, go" in groups[0]
    found = Counter[str]()
    for group in groups[1:]:
        head, first = group.splitlines()[0], group.splitlines()[1:]
        main = next((line.split()[0] for line in first if line.strip().startswith("main.")), "")
        found[main.removeprefix("main.")] += int(head.split()[0])
    assert {name: found[name] for name in expected} == expected
    assert "10 goroutines: select, none moved" in output.stdout


def test_each_goroutine_can_be_shown_by_itself() -> None:
    with running(NEWEST, "plain") as run:
        output = verb("dump", "--pid", str(run.target.pid), "--all", "--apart", "0")
        goids = [goid for report in run.reports.values() for goid in report["goids"]]
        run.target.kill()
    for goid in goids:
        assert f"\ngoroutine {goid}: " in output.stdout


def test_goroutines_under_load_have_stacks_that_they_had() -> None:
    """Those of parked -busy have levels of busyLeft only or of busyRight only."""
    with running(NEWEST, "plain", "-busy=16") as run:
        scanner = GoroutineScanner(run.go)
        frames = StackFrames(run.go)
        seen = 0
        for _ in range(200):
            for goroutine in scanner.scan().goroutines:
                names = [frame.function for frame in frames.of(goroutine.pcs)]
                sides = {name for name in names if name in ("main.busyLeft", "main.busyRight")}
                assert len(sides) <= 1, names
                seen += bool(sides)
        run.target.kill()
    assert seen > 100


def test_a_goroutine_that_moves_is_distinguished_from_one_that_stands() -> None:
    with Target.start(program("load"), "-length=60s") as target:
        target.say("go")
        with Process(target.pid) as process:
            go = inspect(process)
            found = dump(go, apart_s=1.0).goroutines
        target.kill()
    standing = Counter[str]()
    moving = Counter[str]()
    for each in found:
        name = next((f.function for f in each.frames if f.function.startswith("main.")), "")
        (standing if each.stood_ns else moving)[name] += 1
    assert standing["main.waitForEver"] == 50
    assert standing["main.waitSinceBefore"] == 1
    assert moving["main.waitForEver"] == 0
    assert standing["main.useLock"] + standing["main.takeJobs"] == 0  # by chance, 1 in 65,536


def test_it_is_reported_for_how_long_they_stood_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the last sample took is not part of it: they may have gone on meanwhile."""
    now_ns, reads = time.clock_gettime_ns, 0

    def clock_gettime_ns(clock: int) -> int:
        return now_ns(clock) + (HOUR_NS if sample_begun(reads) >= DUMPED.samples - 1 else 0)

    with running("1.27", "plain") as run:
        allgs = allgs_address(run.go.binary) + run.go.load_bias

        def behind(address: int, _: bytes) -> None:
            nonlocal reads
            reads += address == allgs

        with ActingProcess(run.target.pid, behind) as process:
            go = inspect(process)
            reads = 0
            with monkeypatch.context() as patched:
                patched.setattr(time, "clock_gettime_ns", clock_gettime_ns)
                patched.setattr(time, "monotonic", lambda: 0.0)  # or there may be fewer samples
                found = dump(go, apart_s=0.01)
        run.target.kill()
    assert sample_begun(reads) >= DUMPED.samples - 1
    stood = {goroutine.stood_ns for goroutine in found.goroutines} - {0}
    assert stood == {found.apart_ns}
    assert 10_000_000 <= found.apart_ns < HOUR_NS


def test_a_program_that_uses_all_its_time_is_shown_as_running() -> None:
    with Target.start(program("cpuops")) as target:
        target.say("work ^sumSHA256$ 5000")
        states = Counter[str]()
        while not states["running"]:
            states += Counter(
                each["state"]
                for each in dumped("--pid", str(target.pid), "--apart", "0")["goroutines"]
            )
        target.kill()


def test_the_rights_to_read_memory_are_enough() -> None:
    """Neither BPF nor perf events."""
    with running(NEWEST, "plain") as run:
        words = [sys.executable, "-m", "ebpfprof", "dump", "--pid", str(run.target.pid), "--json"]
        rights = "--bounding-set=-all,+sys_ptrace,+dac_read_search"
        output = subprocess.run(
            ["/usr/bin/setpriv", rights, *words], capture_output=True, text=True, check=False
        )
        run.target.kill()
    assert output.returncode == 0, output.stderr
    assert json.loads(output.stdout)["pid"] == run.target.pid


def test_a_program_that_is_not_go_is_refused() -> None:
    with Target.start(Path("/usr/bin/yes"), ready="y") as target:
        output = verb("dump", "--pid", str(target.pid))
        target.kill()
    assert output.code == ExitCode.NOT_GO_PROGRAM
    assert "Traceback" not in output.stderr
