"""Programs that are started stopped, and followed to those that they replace themselves by."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from ebpfprof.errors import CommandNotFound, CommandNotRunnable, EbpfprofError, PermissionDenied
from ebpfprof.process.launch import LaunchedProgram
from ebpfprof.process.process import Target
from tests.kernel.unharmed import await_true


@contextmanager
def launched(*command: str) -> Iterator[LaunchedProgram]:
    with LaunchedProgram(command) as program:
        yield program


def state_of(program: LaunchedProgram) -> str:
    return Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0]


def shell(script: str) -> tuple[str, str, str]:
    return ("sh", "-c", script)


@pytest.mark.parametrize(("end", "status"), [("exit 7", 7), ("kill -TERM $$", 128 + 15)])
def test_a_program_is_stopped_until_it_is_let_run(tmp_path: Path, end: str, status: int) -> None:
    with launched(*shell(f"echo > {tmp_path}/began; {end}")) as program:
        assert (program.is_stopped, program.has_ended) == (True, False)
        assert state_of(program) == "t"
        assert not list(tmp_path.iterdir())
        program.run(follow=False)
        assert program.wait() == status
        assert (program.is_stopped, program.has_ended) == (False, True)
        assert list(tmp_path.iterdir())


def test_a_program_that_replaces_itself_is_stopped_at_the_next_one() -> None:
    with launched(*shell("exec cat /dev/null")) as program, Target(program.pid) as first:
        assert first.tracer() == ""  # which is ours
        program.run(follow=True)
        assert program.wait_until_stopped()
        ending = first.ending()
        assert ending is not None
        assert ending.is_exec
        with Target(program.pid) as second:
            assert second.name == "cat"
            program.run(follow=True)
            assert not program.wait_until_stopped()
            assert program.wait() == 0


def test_a_program_that_is_left_runs_on_through_its_next_ones() -> None:
    with launched(*shell("read line; exec cat")) as program:
        program.leave()
        assert not program.is_stopped
        program.send(signal.SIGKILL)
        assert program.wait() == 128 + 9


def test_a_stopped_program_is_killed_at_the_end(tmp_path: Path) -> None:
    with launched(*shell(f"echo > {tmp_path}/began")) as program:
        pid = program.pid
    assert not os.path.exists(f"/proc/{pid}")
    assert not list(tmp_path.iterdir())


def test_a_followed_program_that_stops_goes_on_at_sigcont(tmp_path: Path) -> None:
    over = tmp_path / "over"
    with launched(*shell(f"kill -STOP $$; echo > {over}; exec cat /dev/null")) as program:
        program.run(follow=True)

        def continued() -> bool:
            program.send(signal.SIGCONT)  # one that comes before the stop has no effect
            return over.exists()

        await_true(continued, "it does not go on")
        assert program.wait_until_stopped()
        program.run(follow=False)
        assert program.wait() == 0


def test_a_followed_program_gets_its_signals() -> None:
    with launched(*shell("trap 'exit 5' USR1; kill -USR1 $$; exit 6")) as program:
        program.run(follow=True)
        assert not program.wait_until_stopped()
        assert program.wait() == 5


def test_what_can_not_be_run_has_a_reason(tmp_path: Path) -> None:
    def refusal(kind: type[Exception], name: str) -> str:
        with pytest.raises(kind) as caught:
            LaunchedProgram([str(tmp_path / name)])
        return str(caught.value)

    for name, text in (("bytes", "\1\2\3"), ("script", "#!/nothing/here\n"), ("plain", "")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644 if name == "plain" else 0o755)
    assert "There is no program" in refusal(CommandNotFound, "missing")
    assert "There is no program" in refusal(CommandNotFound, "plain/below")
    assert "exists, but the program that runs it does not" in refusal(CommandNotRunnable, "script")
    assert "may not be executed" in refusal(CommandNotRunnable, "plain")
    assert "may not be executed" in refusal(CommandNotRunnable, "")
    assert "is neither a program for this machine nor" in refusal(CommandNotRunnable, "bytes")
    assert "can't be executed: File name too long" in refusal(CommandNotRunnable, "a" * 300)
    with pytest.raises(CommandNotFound):
        LaunchedProgram([""])


def test_a_program_that_is_killed_before_it_begins_has_that_as_its_reason() -> None:
    before = {child.pid for child in psutil.Process().children()}

    def kill() -> None:
        (forked,) = (one for one in psutil.Process().children() if one.pid not in before)
        forked.kill()
        await_true(lambda: forked.status() == psutil.STATUS_ZOMBIE, "its end")

    with pytest.raises(EbpfprofError, match=r"^cat was killed before it began\.$"):
        LaunchedProgram(("cat",), on_forked=kill)


def test_a_program_that_another_one_traces_can_not_be_traced() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text().split()

    def trace_it() -> None:
        (pid,) = set(children.read_text().split()) - set(before)
        seize = 0x4206  # include/uapi/linux/ptrace.h
        assert ctypes.CDLL(None).ptrace(seize, int(pid), None, None) == 0

    with pytest.raises(PermissionDenied, match="does not let this user trace a program"):
        LaunchedProgram(["true"], on_forked=trace_it)
    assert children.read_text().split() == before
