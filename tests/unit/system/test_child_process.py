"""Child processes: which signals end them, and the files they hold."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

from ebpfprof.system import child_process, signals


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_that_ignores_signals_survives_them() -> None:
    reported, report = os.pipe()

    def wait() -> NoReturn:
        os.read(reported, 1)
        os._exit(7)

    pid = child_process.fork(wait, ignores_signals=True)  # it never returns
    for number in (*signals.NUMBERS, signal.SIGQUIT):
        os.kill(pid, number)
    os.write(report, b"x")
    assert ended(pid) == 7
    os.close(reported)
    os.close(report)


def test_a_forked_child_ends_at_a_signal_by_default() -> None:
    pid = child_process.fork(lambda: signal.pause())  # type: ignore[arg-type, return-value]  # it never returns
    os.kill(pid, signal.SIGTERM)
    assert ended(pid) == -signal.SIGTERM


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_a_child_holds_only_the_files_it_is_given(order: tuple[int, ...], tmp_path: Path) -> None:
    files = [os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in "abc"]
    reads, writes = os.pipe()

    def report(out: int, *given: int) -> None:
        names = {}
        for fd in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # that of the listing itself
                names[fd] = os.readlink(f"/proc/self/fd/{fd}")
        comm = Path("/proc/self/comm").read_text().strip()
        assert not any(map(os.get_inheritable, (out, *given)))
        facts = comm, os.getcwd(), os.getsid(0) == os.getpid(), given, names
        os.write(out, json.dumps(facts).encode())

    pid = child_process.start(
        "ebpfprof-test", report, [writes, *(files[each] for each in order)], new_session=True
    )
    os.close(writes)
    comm, folder, leads_session, given, names = json.loads(os.read(reads, 4096))
    assert (comm, folder, leads_session) == ("ebpfprof-test", "/", True)
    assert given == [4, 5, 6]
    assert names.pop("3").startswith("pipe:")
    standard = {str(fd): "/dev/null" for fd in range(3)}
    assert names == standard | {
        str(4 + index): str(tmp_path / "abc"[each]) for index, each in enumerate(order)
    }
    assert ended(pid) == 0
    for fd in (*files, reads):
        os.close(fd)


def test_a_failing_child_exits_with_1() -> None:
    def fail() -> None:
        raise ValueError

    assert ended(child_process.start("ebpfprof-test", fail, [])) == 1


@pytest.mark.parametrize("kill_us", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_ends_with_its_parent_on_request(kill_us: signal.Signals) -> None:
    reads, writes = os.pipe()
    begun, begins = os.pipe()

    def wait(held: int, begins: int) -> None:
        os.write(begins, b"x")
        signal.pause()

    def starter() -> NoReturn:
        child_process.start("ebpfprof-test", wait, [writes, begins], ends_with_us=True)
        os.close(writes)
        signal.pause()
        os._exit(0)

    pid = child_process.fork(starter)  # it never returns
    os.close(writes)
    assert os.read(begun, 1) == b"x"
    os.kill(pid, kill_us)
    assert os.read(reads, 1) == b""  # its end of the pipe is closed
    assert ended(pid) == -kill_us
    for fd in (reads, begun, begins):
        os.close(fd)
