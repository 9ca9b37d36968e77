"""How `ebpfprof dump` behaves: several processes, few rights, a busy program, a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from tests.kernel.oncall_program import oncall
from tests.kernel.screens import screen
from tests.kernel.verbs import verb
from tests.targets_run import Target

NOT_GO = Path("/usr/bin/yes")
ROOT = Path(__file__).parents[2]
shell = partial(screen, columns=80, rows=24, PYTHONPATH=str(ROOT))


@pytest.mark.full
def test_one_process_that_fails_does_not_end_the_dump_of_the_others() -> None:
    with oncall() as run, Target.start(NOT_GO, ready="y") as other:
        pids = ("--pid", str(other.pid), "--pid", str(run.target.pid))
        text = verb("dump", "--apart", "0", *pids)
        lines = verb("dump", "--apart", "0", "--json", *pids)
        watched = verb("dump", "--watch", "--duration", "0.1", *pids)
        other.kill()
    for output in (text, lines, watched):
        assert output.code == ExitCode.NOT_GO_PROGRAM
        assert f"(process {other.pid})" in output.stderr
        assert output.stderr.count("ebpfprof: ") == 1
    assert f"goroutines of process {run.target.pid} (oncall, go" in text.stdout
    assert f"process {run.target.pid} (oncall), 0 s: " in watched.stdout
    decoder, rest, found = json.JSONDecoder(), lines.stdout.strip(), []
    while rest:
        each, end = decoder.raw_decode(rest)
        found.append(each)
        rest = rest[end:].strip()
    assert [each["pid"] for each in found] == [other.pid, run.target.pid]
    assert found[0]["exit_code"] == ExitCode.NOT_GO_PROGRAM
    assert found[1]["goroutines"]


def test_the_exit_code_is_that_of_the_first_failure() -> None:
    with Target.start(NOT_GO, ready="y") as one, Target.start(Path("/bin/cat"), ready=None) as two:
        output = verb("dump", "--pid", f"{one.pid},{two.pid}")
        one.kill()
        two.kill()
    assert output.code == ExitCode.NOT_GO_PROGRAM
    assert output.stderr.count("ebpfprof: ") == 2
    assert output.stdout == ""


def test_the_right_to_trace_is_enough() -> None:
    """Neither BPF, nor perf events, nor the right to read others' files."""
    with oncall() as run:
        fact = run.facts
        words = [sys.executable, "-m", "ebpfprof", "dump", "--json", "--apart", "0"]
        rights = "--bounding-set=-all,+sys_ptrace"
        command = ["/usr/bin/setpriv", rights, *words, "--pid", str(run.target.pid)]
        output = subprocess.run(command, capture_output=True, text=True, check=False)
    assert output.returncode == 0, output.stderr
    found = {load["id"]: load["waits_for"] for load in json.loads(output.stdout)["goroutines"]}
    assert found[fact["readTCP"]["id"]]["file"]["fd"] == fact["readTCP"]["fd"]
    assert found[fact["readInCall"]["id"]]["system_call"]["name"] == "read"
    assert found[fact["lock"]["id"]]["lock"]["may_be_held_by"] == [fact["lock"]["holder"]]


@pytest.mark.full
@pytest.mark.alone
def test_a_program_that_needs_all_processors_is_dumped_whole() -> None:
    with oncall() as run:
        run.target.ask("spin 8", "spinning")
        fact = run.facts
        for _ in range(3):
            found = run.dump("--apart", "0.05")
            spinning = [
                each
                for each in found.values()
                if each["state"] in ("running", "runnable") and not each["did_not_move"]
            ]
            assert len(spinning) >= 8
            lock = found[fact["lock"]["id"]]["waits_for"]["lock"]
            assert lock["may_be_held_by"] == [fact["lock"]["holder"]]
            assert found[fact["lock"]["id"]]["did_not_move"]


@pytest.mark.parametrize(
    ("options", "pager", "is_paged"),
    [
        ("", "sed s/^/paged:/", True),
        ("--no-pager", "sed s/^/paged:/", False),
        ("--json", "sed s/^/paged:/", False),
        ("", "cat", False),
        ("", "/no/such/pager", False),
    ],
)
def test_a_long_text_goes_through_the_pager(
    options: str, pager: str, is_paged: bool, tmp_path: Path
) -> None:
    with oncall() as run, shell(tmp_path, PAGER=pager) as terminal:
        command = f"{sys.executable} -m ebpfprof dump --pid {run.target.pid} --apart 0 {options}"
        terminal.type(f"clear; {command}; echo the end is $?")
        terminal.wait_for(r"^the end is 0")
        shown = terminal.history
    assert ("paged:" in shown) == is_paged
    assert str(run.target.pid) in shown


def test_less_shows_a_long_text_and_ends_at_q(tmp_path: Path) -> None:
    with oncall() as run, shell(tmp_path, SUDO_UID="1", PAGER="false") as terminal:
        command = f"{sys.executable} -m ebpfprof dump --pid {run.target.pid} --apart 0"
        terminal.type(f"clear; {command}; echo the end is $?")
        terminal.wait_for(r"^:")  # the prompt of less
        top = terminal.text()
        terminal.press("q")
        terminal.wait_for(r"^the end is 0")
    assert f"goroutines of process {run.target.pid}" in top
    assert all(len(line) <= 80 for line in top.splitlines())
