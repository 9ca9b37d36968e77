"""`ebpfprof trace`, as a user runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from ebpfprof.errors import ExitCode
from tests.builds import in_full
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.kernel.screens import screen
from tests.kernel.verbs import Said, verb
from tests.targets_run import DEADLINE_S, Target
from tests.toolchains import toolchain

STATES = re.compile(r"^M=.* StateTransition .*GoID=(\d+) (\w+)->(\w+)", re.MULTILINE)
ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "ebpfprof", "trace")


@contextmanager
def working(work: str, folder: Path) -> Iterator[Target]:
    """A program at work, whose own tracer is off again."""
    with Target.start(program("traced")) as target:
        target.ask(f"trace {folder / 'unused'} {work}", "begun")
        target.ask("end", "ended")
        yield target
        target.kill()


def trace(*arguments: str) -> Said:
    return verb("trace", *arguments)


def parsed(path: Path) -> str:
    return toolchain("1.27").go("tool", "trace", "-d=parsed", path)


def perfetto(path: Path) -> Trace:
    found = Trace()
    found.ParseFromString(path.read_bytes())
    return found


def test_it_writes_a_trace_for_go_s_tool_and_says_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "locks.trace"
    with working("locks", tmp_path) as target:
        output = trace("--pid", str(target.pid), "--duration", "0.3", "-o", str(path))
        assert not has_probes(target.pid)
    assert output.code == ExitCode.OK, output.stderr
    assert f"Goroutines of process {target.pid} (traced)" in output.stdout
    assert "main.locks.func1" in output.stdout
    assert f"Next: go tool trace {path}" in output.stdout
    assert re.search(
        r"^Overhead: \S+ [mu]?s, \S+ % of the process's CPU time\.$", output.stdout, re.M
    )
    assert max(map(len, output.stdout.splitlines())) <= 110
    assert len(STATES.findall(parsed(path))) > 100
    assert path.stat().st_mode & 0o777 == 0o600


@contextmanager
def annotating() -> Iterator[Target]:
    """A program that reports its work, while its own tracer is off."""
    with Target.start(program("annotated")) as target:
        target.ask("work", "working")
        yield target
        target.kill()


def test_tasks_of_a_program_whose_own_tracer_is_off_have_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    with annotating() as target:
        output = trace(str(target.pid), "-d", "0.3", "-o", str(path))
    assert output.code == ExitCode.OK, output.stderr
    _, table = output.stdout.split(f"Tasks of process {target.pid} (annotated)")
    assert re.search(r"^ *\d+ .* order$", table, re.M)
    assert re.search(r"^ *\d+ .* dish$\n^ +waits for sleep \d", table, re.M)
    text = parsed(path)
    assert text.count('Type="cook"') > 10
    assert text.count('Category="number"') > 5


@pytest.mark.full
def test_the_last_seconds_have_annotations_too(tmp_path: Path) -> None:
    path = tmp_path / "a.perfetto-trace"
    with annotating() as target:
        output = trace(str(target.pid), "--last", "1", "-d", "0.3", "-o", str(path))
    assert output.code == ExitCode.OK, output.stderr
    names = {each.track_descriptor.name for each in perfetto(path).packet}
    assert {"order", "dish"} <= names


def test_a_file_s_name_shows_the_format(tmp_path: Path) -> None:
    page = tmp_path / "a.html"  # test_a_bound_makes_slices_and_says_so has another format
    with working("locks", tmp_path) as target:
        output = trace(str(target.pid), "-d", "0.3", "-q", "-o", str(page))
        assert output.code == ExitCode.OK, output.stderr
        assert output.stdout == f"Written: {page}\n"
    assert "main.locks" in page.read_text()


@pytest.mark.full
def test_without_a_name_the_file_has_that_of_the_process(tmp_path: Path) -> None:
    with working("sleeps", tmp_path) as target:
        output = verb(
            "trace", str(target.pid), "-d", "0.2", "-f", "perfetto", "-q", folder=tmp_path
        )
    assert output.code == ExitCode.OK, output.stderr
    (path,) = tmp_path.glob(f"traced-{target.pid}-*.perfetto-trace")
    assert len(perfetto(path).packet) > 10


def test_what_there_is_is_written_when_the_program_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    with working("locks", tmp_path) as target:
        tracing = started("--pid", str(target.pid), "-d", "60", "-o", str(path))
        target.ask(f"trace {tmp_path / 'more'} locks", "begun")  # the program continues meanwhile
        target.ask("end", "ended")
        target.kill()
        _, errors = tracing.communicate(timeout=DEADLINE_S)
    assert tracing.returncode == ExitCode.OK, errors
    assert "ended early: process" in errors
    assert len(STATES.findall(parsed(path))) > 5


def started(*arguments: str) -> subprocess.Popen[str]:
    """The command, once it records."""
    tracing = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert tracing.stderr
    for line in tracing.stderr:
        if line.startswith("tracing process"):
            return tracing
    raise AssertionError("it did not begin to record")


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, *in_full(signal.SIGTERM)])
def test_a_signal_ends_it_and_the_last_moments_are_written(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "a.trace"
    with working("locks", tmp_path) as target:
        tracing = started(str(target.pid), "--last", "0.2", "-o", str(path), "--max-overhead", "0")
        target.ask(f"trace {tmp_path / 'more'} locks", "begun")  # the program continues meanwhile
        target.ask("end", "ended")
        os.kill(tracing.pid, number)
        output, errors = tracing.communicate(timeout=DEADLINE_S)
    assert tracing.returncode == ExitCode.OK, errors
    assert re.search(r"\(traced\), (?:200|1\d\d|\d\d\.\d|\d\.\d\d) ms:", output)
    text = parsed(path)
    times = [int(time) for time in re.findall(r" StateTransition Time=(\d+) ", text)]
    assert 0 < max(times) - min(times) <= 0.2e9
    assert len(STATES.findall(text)) > 50


@pytest.mark.parametrize("number", [signal.SIGUSR1, *in_full(signal.SIGUSR2)])
def test_another_signal_writes_the_last_moments_and_continues(
    number: signal.Signals, tmp_path: Path
) -> None:
    path = tmp_path / "a.trace"
    with working("locks", tmp_path) as target:
        tracing = started(str(target.pid), "--last", "1", "-o", str(path), "--max-overhead", "0")
        assert tracing.stdout
        written = []
        for _ in range(2):
            os.kill(tracing.pid, number)
            found = re.fullmatch(r"Written: (\S+) \(\S+ m?s\)\n", tracing.stdout.readline())
            assert found
            written.append(Path(found[1]))
            assert has_probes(target.pid)
        assert not path.exists()
        tracing.send_signal(signal.SIGINT)
        output, errors = tracing.communicate(timeout=DEADLINE_S)
    assert tracing.returncode == ExitCode.OK, errors
    assert f"Written: {path}" in output
    # The second one may have the first one's name with a number behind.
    assert all(re.fullmatch(r"a-\d{8}-\d{6}(-2)?\.trace", each.name) for each in written)
    assert len({*written, path}) == 3
    times = []
    for each in (*written, path):
        text = parsed(each)
        assert len(STATES.findall(text)) > 50
        times.append([int(at) for at in re.findall(r" StateTransition Time=(\d+) ", text)])
    assert all(max(time) - min(time) <= 1e9 for time in times)
    assert max(times[0]) < max(times[1]) < max(times[2])


@pytest.mark.full
def test_a_small_buffer_keeps_what_came_last(tmp_path: Path) -> None:
    """And all of that: no event within is missing."""
    path = tmp_path / "a.trace"
    with working("channels", tmp_path) as target:
        output = trace(
            *(str(target.pid), "--last", "100", "-d", "3", "--buffer", "1", "-o", str(path)),
            *("--max-overhead", "0"),
        )
    assert output.code == ExitCode.OK, output.stderr
    assert "contradict" not in output.stderr
    length = re.search(r"\(traced\), (\S+) ([um]?s):", output.stdout)
    assert length, output.stdout
    assert float(length[1]) * {"s": 1, "ms": 1e-3, "us": 1e-6}[length[2]] < 2.9
    assert len(STATES.findall(parsed(path))) > 1000


@pytest.mark.full
def test_it_ends_when_there_are_many_goroutines(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    with working("sleeps", tmp_path) as target:
        tracing = started(
            *(str(target.pid), "--last", "5", "--until-goroutines", "40", "-o", str(path))
        )
        target.ask(f"trace {tmp_path / 'more'} sleeps", "begun")  # 21 more
        target.ask("end", "ended")
        _, errors = tracing.communicate(timeout=DEADLINE_S)
    assert tracing.returncode == ExitCode.OK, errors
    assert re.search(r"there are \d\d goroutines", errors)


def test_it_ends_when_one_waits_long_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    with Target.start(program("heldlocks")) as target:
        tracing = started(str(target.pid), "--until-wait", "300ms", "-o", str(path))
        target.ask("hang 1", "{")
        _, errors = tracing.communicate(timeout=DEADLINE_S)
        target.kill()
    assert tracing.returncode == ExitCode.OK, errors
    output = r"goroutine \d+ has waited for at least (\d+ ms|\S+ s) \(s\S+\): main\.\(\*group\)\.in"
    assert re.search(output, errors), errors


def test_a_bound_makes_slices_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.perfetto-trace"
    with working("channels", tmp_path) as target:
        output = trace(str(target.pid), "-d", "2", "--max-overhead", "0.5", "-o", str(path))
    assert output.code == ExitCode.OK, output.stderr
    found = re.search(
        r"recorded (\S+ \S+) of (\S+ \S+) in (\d+) slices?: to record all costs about \S+ % of the "
        rf"CPU time of the process\. To record all:\n    ebpfprof trace --pid {target.pid} "
        r"--max-overhead 0\n",
        output.stderr,
    )
    assert found, output.stderr
    assert re.search(r"\(traced\), \S+ s with pauses, \S+ [mu]?s recorded:$", output.stdout, re.M)
    names: dict[int, str] = {}
    gaps = 0
    for packet in perfetto(path).packet:
        names |= {name.iid: name.name for name in packet.interned_data.event_names}
        is_begin = packet.track_event.type == TrackEvent.TYPE_SLICE_BEGIN
        gaps += is_begin and names.get(packet.track_event.name_iid) == "not recorded"
    assert gaps >= int(found[3]) - 1


@pytest.mark.full
def test_a_quiet_one_says_in_one_line_how_much_was_recorded(tmp_path: Path) -> None:
    options = ("-d", "0.5", "--max-overhead", "0.1", "-q", "-o", str(tmp_path / "quiet.trace"))
    with working("channels", tmp_path) as target:
        quiet = trace(str(target.pid), *options)
    assert re.search(r"^ebpfprof: recorded .* CPU time of the process$", quiet.stderr, re.M)


@pytest.mark.full
def test_without_a_bound_what_waits_for_whom_comes_first_and_all_is_recorded(
    tmp_path: Path,
) -> None:
    """In a program that waits some times a second all costs less than what is free."""
    path = str(tmp_path / "a.trace")
    with working("sleeps", tmp_path) as target:
        output = trace(str(target.pid), "-d", "1", "-o", path)
        every = trace(str(target.pid), "-d", "1", "-o", path, "--force", "--waits-for")
        without = trace(str(target.pid), "-d", "1", "-o", path, "--force", "--no-waits-for")
    assert (output.code, every.code, without.code) == (ExitCode.OK,) * 3, output.stderr
    assert "recorded" not in output.stderr
    first, _, _ = output.stdout.partition("\nGoroutines of process")
    assert first.startswith("Who waits for whom:\n")
    assert len(first.splitlines()) <= 10
    assert every.stdout.startswith("Who waits for whom:\n")
    assert without.stdout.startswith("Goroutines of process")
    assert "Who waits" not in without.stdout


@pytest.mark.full
def test_collections_and_stops_of_the_world_are_there(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    with working("garbage", tmp_path) as target:
        output = trace(str(target.pid), "-d", "1", "--max-overhead", "0", "-o", str(path))
    assert output.code == ExitCode.OK, output.stderr
    text = parsed(path)
    ranges = Counter(re.findall(r' (Range\w+) .*Name="([^"]*)"', text))
    for name in (
        "GC concurrent mark phase",
        "stop-the-world (GC sweep termination)",
        "stop-the-world (GC mark termination)",
        "GC mark assist",
    ):
        assert ranges["RangeBegin", name] >= 1, ranges
        assert abs(ranges["RangeBegin", name] - ranges["RangeEnd", name]) <= 4, ranges


def test_labels_are_those_of_goroutines(tmp_path: Path) -> None:
    path = tmp_path / "a.perfetto-trace"
    with working("labels", tmp_path) as target:
        output = trace(str(target.pid), "-d", "0.5", "--max-overhead", "0", "-o", str(path))
    assert output.code == ExitCode.OK, output.stderr
    labels = Counter(
        annotation.string_value
        for packet in perfetto(path).packet
        for annotation in packet.track_event.debug_annotations
        if annotation.name == "task"
    )
    assert labels["first"] > 10
    assert labels["second"] > 10


def test_one_process_only(tmp_path: Path) -> None:
    with working("sleeps", tmp_path) as one, working("sleeps", tmp_path) as two:
        output = trace(str(one.pid), str(two.pid))
    assert output.code == ExitCode.USAGE
    assert "A trace covers one process, but 2 were chosen." in output.stderr


@pytest.mark.full
def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    path.write_text("mine")
    with working("sleeps", tmp_path) as target:
        output = trace(str(target.pid), "-d", "0.1", "-o", str(path))
        assert output.code == ExitCode.OUTPUT_ERROR
        assert path.read_text() == "mine"
        assert trace(str(target.pid), "-d", "0.1", "-o", str(path), "--force").code == ExitCode.OK
    assert path.read_bytes().startswith(b"go 1.23 trace")


def test_a_program_in_another_language_is_refused() -> None:
    output = trace(str(os.getpid()))
    assert output.code == ExitCode.NOT_GO_PROGRAM


@pytest.mark.full
def test_in_a_terminal_it_shows_for_how_long_it_records_until_a_key_ends_it(tmp_path: Path) -> None:
    """Messages in between stand in lines of their own."""
    with (
        screen(tmp_path, 120, 24, PYTHONPATH=str(ROOT)) as terminal,
        working("locks", tmp_path) as target,
    ):
        terminal.type(f"{' '.join(COMMAND)} {target.pid} --last 1s; echo status $?")
        terminal.wait_for(r"^tracing process .*the last 1 s are kept", r"^[1-9]\d* s$")
        terminal.programs[0].send_signal(signal.SIGUSR1)
        terminal.wait_for(r"^Written: traced-\S+\.trace \(\S+ m?s\)$", r"^\d+ s$")
        terminal.press("C-c")
        terminal.wait_for(r"^Next: go tool trace", r"^status 0$")
