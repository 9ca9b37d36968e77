"""Children started by a small process: what they are, what they have, and how they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.system import lean_start
from tests.kernel.unharmed import await_true

CODE = 7


@pytest.fixture
def starter() -> Iterator[int]:
    """The pid of a starter."""
    before = set(own_children())
    with lean_start.prepared():
        (pid,) = set(own_children()) - before
        await_true(lambda: name_of(pid) == lean_start.NAME, "it has another name")
        yield pid
    assert not Path(f"/proc/{pid}").exists()


def own_children() -> list[int]:
    """The pids of our children."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in found.split()]


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().rstrip()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def say_and_wait(said: str, writes: int, waits: int) -> None:
    os.write(writes, said.encode())
    os.read(waits, 1)


def fail(writes: int) -> None:
    os.write(writes, b"x")
    raise ValueError


def set_code(code: int) -> None:
    os.umask(code)


def say_umask(writes: int) -> None:
    os.write(writes, str(os.umask(0)).encode())


def said_by(child_writes: int, reads: int) -> bytes:
    os.close(child_writes)
    return os.read(reads, 100)


def test_the_starter_starts_it(starter: int) -> None:
    """With its descriptors and nothing else of ours, in a session of its own."""
    reads, writes = os.pipe()
    waits, goes_on = os.pipe()
    child = lean_start.start("ebpfprof-test", say_and_wait, [writes, waits], "here")
    assert said_by(writes, reads) == b"here"
    assert parent_of(child.pid) == starter
    assert os.getsid(starter) == starter
    assert os.getsid(child.pid) == child.pid
    await_true(lambda: name_of(child.pid) == "ebpfprof-test", "it has another name")
    held = sorted(int(fd) for fd in os.listdir(f"/proc/{child.pid}/fd"))
    assert held == [0, 1, 2, 3, 4]
    os.close(goes_on)
    child.wait()
    await_true(lambda: not Path(f"/proc/{child.pid}").exists(), "nobody waited for it")
    os.close(reads)
    os.close(waits)


def test_one_that_fails_ends(starter: int) -> None:
    reads, writes = os.pipe()
    child = lean_start.start("ebpfprof-test", fail, [writes])
    assert said_by(writes, reads) == b"x"
    child.wait()
    os.close(reads)
    assert name_of(starter)  # it continues


def test_without_a_starter_it_is_a_child_of_ours() -> None:
    reads, writes = os.pipe()
    waits, goes_on = os.pipe()
    child = lean_start.start("ebpfprof-test", say_and_wait, [writes, waits], "here")
    assert said_by(writes, reads) == b"here"
    assert parent_of(child.pid) == os.getpid()
    os.close(goes_on)
    child.wait()
    assert not Path(f"/proc/{child.pid}").exists()
    os.close(reads)
    os.close(waits)


def test_a_killed_starter_is_not_an_obstacle() -> None:
    before = set(own_children())
    with lean_start.prepared():
        (pid,) = set(own_children()) - before
        os.kill(pid, signal.SIGKILL)
        await_true(lambda: state_of(pid) == "Z", "it does not end")
        reads, writes = os.pipe()
        child = lean_start.start("ebpfprof-test", fail, [writes])
        assert said_by(writes, reads) == b"x"
        assert parent_of(child.pid) == os.getpid()
        child.wait()
        os.close(reads)
        lean_start.do_everywhere(set_code, CODE)
    assert os.umask(0o022) == CODE


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.usefixtures("starter")
def test_what_is_done_everywhere_holds_for_children() -> None:
    before = os.umask(0)
    os.umask(before)
    lean_start.do_everywhere(set_code, CODE)
    reads, writes = os.pipe()
    child = lean_start.start("ebpfprof-test", say_umask, [writes])
    assert said_by(writes, reads) == str(CODE).encode()
    child.wait()
    os.close(reads)
    assert os.umask(before) == CODE


@pytest.mark.usefixtures("starter")
def test_children_end_with_the_program_that_asked_for_them_only_by_themselves() -> None:
    """As the helper that detaches probes does: it outlives us, and sees that we have ended."""
    reads, writes = os.pipe()
    waits, goes_on = os.pipe()
    asks = os.fork()
    if not asks:
        try:
            with lean_start.prepared():
                lean_start.start("ebpfprof-test", say_and_wait, [writes, waits], "here")
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.waitpid(asks, 0)
    assert said_by(writes, reads) == b"here"
    os.close(goes_on)
    assert os.read(reads, 1) == b""  # it has ended, too
    os.close(reads)
    os.close(waits)
