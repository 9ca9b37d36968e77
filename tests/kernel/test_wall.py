"""The wall profile: where goroutines spend their time, held against arithmetic."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profile.operations import STATE
from tests.builds import builds
from tests.kernel.kernel_state import has_probes
from tests.kernel.parked_program import running
from tests.kernel.programs import program
from tests.kernel.verbs import verb
from tests.recorder import only_profile, recording, run
from tests.server.serving import Server
from tests.targets_run import Target

GOROUTINES = 20


def state(sample: Sample) -> str:
    """What the goroutines of a sample do."""
    (found,) = [str(label.value) for label in sample.labels if label.key == STATE]
    return found


def times_by_state(profile: Profile) -> dict[str, int]:
    """For how long goroutines were in each state, in ns."""
    found: dict[str, int] = defaultdict(int)
    for sample in profile.samples:
        found[state(sample)] += sample.values[1]
    return found


@pytest.mark.parametrize(("version", "mode"), builds())
def test_goroutines_at_rest_are_in_their_states_all_the_time(
    version: str, mode: str, tmp_path: Path
) -> None:
    with running(version, mode) as target:
        pid = str(target.target.pid)
        finished = run("--pid", pid, "--profile", "wall", "-d", "0.3", folder=tmp_path)
        target.target.kill()
        reports = target.reports
    assert finished.code == ExitCode.OK, finished.stderr
    profile = only_profile(tmp_path)
    assert [(each.type, each.unit) for each in profile.sample_types] == [
        ("samples", "count"),
        ("wall", "nanoseconds"),
    ]
    (comment,) = [each for each in profile.comments if "samples at random times" in each]
    samples = int(comment.split()[0])
    expected: dict[str, int] = defaultdict(int)
    for report in reports.values():
        expected[report["state"]] += len(report["goids"])
    found: dict[str, int] = defaultdict(int)
    for sample in profile.samples:
        if all(frame.function != "main.main" for frame in sample.frames):
            found[state(sample)] += sample.values[0]
    # The main goroutine waits for its input in a system call; another of the runtime's may help it.
    assert {name: found[name] for name in expected} == {
        name: samples * count for name, count in expected.items()
    }


def test_all_time_of_all_goroutines_is_there(tmp_path: Path) -> None:
    with Target.start(program("crowd"), f"-goroutines={GOROUTINES}") as target:
        pid = str(target.pid)
        with recording(target.pid, tmp_path, "--profile", "wall", "-d", "2") as recorder:
            assert not has_probes(target.pid)
            finished = recorder.finish()
    assert finished.code == ExitCode.OK, finished.stderr
    profile = only_profile(tmp_path)
    times = times_by_state(profile)
    # The crowd, the goroutine that wakes it, and main, which waits for its input. Looks begin and
    # end a few milliseconds before and after the recording.
    whole = (GOROUTINES + 2) * profile.duration_ns
    assert 0.9 * whole < sum(times.values()) < 1.1 * whole
    waits = times["chan receive"] + times["runnable"]
    assert waits / sum(times.values()) == pytest.approx(GOROUTINES / (GOROUTINES + 2), rel=0.05)
    # Of the ten, or of some of them.
    assert "the ten stacks with the longest delays (one standard error)" in " ".join(
        profile.comments
    )
    assert not any("of all delays" in comment for comment in profile.comments)
    output = finished.stdout.decode()
    assert "Time" in output
    assert "main.wait" in output
    assert f"process {pid} (crowd)" in output
    assert "Mean" not in output


def test_labels_are_those_of_goroutines(tmp_path: Path) -> None:
    with Target.start(program("labels")) as target:
        target.ask("hold", "done")
        pid = str(target.pid)
        finished = run("--pid", pid, "--profile", "wall", "-d", "0.2", folder=tmp_path)
        chosen = run("--pid", pid, "--profile", "goroutine", "-d", "0.1", folder=tmp_path)
        target.kill()
    assert finished.code == chosen.code == ExitCode.OK, finished.stderr
    wall, goroutines = (
        pprof.decode(next(tmp_path.glob(f"*.{kind}.pb.gz")).read_bytes())
        for kind in ("wall", "goroutine")
    )
    expected = {sample.labels for sample in goroutines.samples if sample.labels}
    found = {tuple(label for label in each.labels if label.key != STATE) for each in wall.samples}
    assert len(expected) > 3
    assert found - {()} == expected


@pytest.mark.full
def test_top_report_and_diff_take_it(tmp_path: Path) -> None:
    with Target.start(program("crowd"), f"-goroutines={GOROUTINES}") as target:
        pid = str(target.pid)
        for _ in range(2):
            done = run("--pid", pid, "--profile", "wall", "-d", "0.3", folder=tmp_path)
            assert done.code == ExitCode.OK, done.stderr
        command = [sys.executable, "-m", "ebpfprof", "top", "--pid", pid, "--profile", "wall"]
        shown = subprocess.run(
            [*command, "--batch", "2", "--interval", "0.5"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert "main.wait" in shown
    first, second = map(str, sorted(tmp_path.glob("*.pb.gz")))
    reported = verb("report", first).stdout
    assert "Time of goroutines of crowd" in reported
    assert "sleep" in reported
    document = json.loads(verb("report", "-f", "json", first).stdout)
    assert document["kind"] == "wall"
    assert set(document["strings"]) >= {"chan receive", "sleep", "state"}
    assert verb("diff", first, second).code == ExitCode.OK


@pytest.mark.full
def test_a_server_has_it_where_fgprof_would() -> None:
    with (
        Target.start(program("crowd"), f"-goroutines={GOROUTINES}") as target,
        Server("--pid", str(target.pid), "--profile", "wall") as server,
    ):
        assert server.ready
        for path in ("/debug/fgprof", "/debug/pprof/wall", f"/proc/{target.pid}/debug/fgprof"):
            answer = server.get(f"{path}?seconds=1")
            assert answer.status == 200, answer.body
            profile = pprof.decode(answer.body)
            assert profile.kind == "wall"
            times = times_by_state(profile)
            share = (times["chan receive"] + times["runnable"]) / sum(times.values())
            assert share == pytest.approx(GOROUTINES / (GOROUTINES + 2), rel=0.05)
        answer = server.get("/debug/fgprof?seconds=1&format=folded")
        assert answer.status == 200
        assert b"main.wait;" in answer.body
        refused = server.get("/debug/fgprof?seconds=1&format=svg")
        assert refused.status == 400
        assert b"pprof or folded" in refused.body
        assert not has_probes(target.pid)


@pytest.mark.full
def test_errors_stand_beside_times_and_digits_are_those_that_are_known(tmp_path: Path) -> None:
    with Target.start(program("shop")) as target:
        pid = str(target.pid)
        finished = run("--pid", pid, "--profile", "wall", "-d", "1", folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    lines = finished.stdout.decode().splitlines()
    (heading,) = [line for line in lines if line.split()[:2] == ["Time", "Error"]]
    at = heading.index("Error") + len("Error")
    rows = [line for line in lines if line[:at].rstrip().endswith("%")]
    assert rows
    for row in rows:
        value, reported = row[:at].rsplit("+-", 1)
        error = float(reported.rstrip("%")) / 100
        digits = sum(each.isdigit() for each in value.split()[0].strip("0."))
        # At most one digit more than the error leaves.
        assert digits <= max(1, 1 - math.floor(math.log10(error))) or "." not in value, row


@pytest.mark.full
def test_goroutines_that_run_are_named_after_what_their_go_statement_called(tmp_path: Path) -> None:
    with Target.start(program("load"), "-length=60s", "-pace=20ms") as target:
        target.say("go")
        pid = str(target.pid)
        finished = run("--pid", pid, "--profile", "wall", "-d", "1", folder=tmp_path)
        target.kill()
    assert finished.code == ExitCode.OK, finished.stderr
    running = [sample for sample in only_profile(tmp_path).samples if state(sample) == "running"]
    stacks = {tuple(frame.function for frame in each.frames) for each in running}
    assert ("[running: no stack]", "main.produce") in stacks
    assert not any("gowrap" in name for stack in stacks for name in stack)


def test_goroutines_in_c_have_their_stacks(tmp_path: Path) -> None:
    with Target.start(program("threads", mode="cgo")) as target:
        target.ask(f"c {GOROUTINES}", "done")
        pid = str(target.pid)
        finished = run("--pid", pid, "--profile", "wall", "-d", "0.5", folder=tmp_path)
    assert finished.code == ExitCode.OK, finished.stderr
    profile = only_profile(tmp_path)
    in_c = sum(
        sample.values[1]
        for sample in profile.samples
        if "main.sleepInC" in {frame.function for frame in sample.frames}
    )
    assert in_c == pytest.approx(GOROUTINES * profile.duration_ns, rel=0.05)
