"""A child process for system calls that may never return."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, process_time, sleep
from typing import Any

import pytest

from ebpfprof.system.channel import ChildFailedError, Frame
from ebpfprof.system.file_worker import Answer, FileWorker, NoAnswerError
from tests.targets_run import SLOWNESS

PATIENCE_S = 0.4 * SLOWNESS
DEADLINE_S = 60 * SLOWNESS


class Task:
    """Does what the test asks for."""

    def begin(self) -> None:
        pass

    def answer(self, request: Any, fds: Sequence[int]) -> Frame:  # noqa: ANN401 - JSON
        match request:
            case "wait for", path:
                os.close(os.open(path, os.O_RDONLY))
            case "touch", path:
                if path.endswith(f"-{os.getpid()}"):
                    Path(path).touch()
            case "compute":
                end_s = process_time() + 1.1 * PATIENCE_S
                while process_time() < end_s:
                    pass
            case "end":
                os._exit(1)
            case "fail":
                raise ValueError(request)
            case "pid":
                return Frame(os.getpid())
            case "name":
                name = os.readlink(f"/proc/self/fd/{fds[0]}")
                return Frame(name, [os.open("/dev/null", os.O_RDONLY)])
            case "refuse":
                raise PermissionError(errno.EACCES, "It is not yours")
        return Frame(request)


@pytest.fixture
def over(tmp_path: Path) -> Iterator[Path]:
    """A pipe without a writer until the test is over: an open blocks until then."""
    os.mkfifo(tmp_path / "over")
    yield tmp_path / "over"
    os.close(os.open(tmp_path / "over", os.O_RDWR))  # else stuck children stay behind


@pytest.fixture
def worker(over: Path) -> Iterator[FileWorker]:
    files = len(os.listdir("/proc/self/fd"))
    with FileWorker(Task, patience_s=PATIENCE_S) as made:
        yield made
    assert len(os.listdir("/proc/self/fd")) == files


def results(answers: Sequence[Answer]) -> list[Any]:
    assert all(isinstance(answer, Frame) for answer in answers)
    return [answer.message for answer in answers if isinstance(answer, Frame)]


def await_end_of(pid: int) -> None:
    until = monotonic() + DEADLINE_S
    while os.path.exists(f"/proc/{pid}"):
        assert monotonic() < until
        sleep(0.01)


def test_answers_come_in_order_from_one_child(worker: FileWorker) -> None:
    long = "x" * (1 << 20)
    answers = worker.ask_all(["pid", long, "\ud800", 7, "pid"])
    assert results(answers[1:4]) == [long, "\ud800", 7]
    assert answers[0] == answers[4] != Frame(os.getpid(), [])


def test_descriptors_are_passed_both_ways(worker: FileWorker, tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_PATH)
    answer = worker.ask("name", [fd])
    (given,) = answer.fds
    assert answer.message == str(tmp_path)
    assert os.readlink(f"/proc/self/fd/{given}") == "/dev/null"
    os.close(fd)
    os.close(given)


@pytest.mark.parametrize("ends", [False, True])
def test_a_child_that_does_not_answer_is_abandoned(
    worker: FileWorker, over: Path, ends: bool
) -> None:
    silent = "end" if ends else ("wait for", str(over))
    requests = ["pid", silent, 2, silent, silent, 5]
    answers = worker.ask_all(requests)
    assert [isinstance(each, NoAnswerError) for each in answers] == [
        each == silent for each in requests
    ]
    assert results(answers[2::3]) == [2, 5]
    assert [worker.ask("pid")] != answers[:1]
    with pytest.raises(NoAnswerError, match=f"did not answer within {PATIENCE_S:g} s"):
        worker.ask(silent)


def test_an_abandoned_child_ends_with_its_next_answer(worker: FileWorker, over: Path) -> None:
    """It does none of the other requests once nothing waits for its answers."""
    pid = worker.ask("pid").message
    worker.ask_all([("wait for", str(over)), ("touch", f"{over}-{pid}")])
    worker.close()
    os.close(os.open(over, os.O_RDWR))
    await_end_of(pid)
    assert not Path(f"{over}-{pid}").exists()


def test_a_busy_child_is_waited_for(worker: FileWorker) -> None:
    assert worker.ask("compute").message == "compute"


@pytest.mark.machine
def test_a_child_that_waits_for_a_processor_is_waited_for(worker: FileWorker) -> None:
    """No process of the usual kind runs on this processor meanwhile but by the kernel's favour."""
    pid = worker.ask("pid").message
    processor = {max(os.sched_getaffinity(0))}
    os.sched_setaffinity(pid, processor)
    os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
    from_child, to_us = os.pipe()
    ours = os.fork()
    if not ours:
        os.sched_setaffinity(0, processor)
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
        os.write(to_us, b"1")
        end_s = monotonic() + 1.5 * PATIENCE_S
        while monotonic() < end_s:
            pass
        os._exit(0)
    assert os.read(from_child, 1)
    assert worker.ask("pid").message == pid
    os.waitpid(ours, 0)
    for fd in (from_child, to_us):
        os.close(fd)


def test_a_late_answer_is_noticed(worker: FileWorker, over: Path) -> None:
    request = "wait for", str(over)
    with pytest.raises(NoAnswerError):
        worker.ask(request)
    assert worker.answered_late() == []
    os.close(os.open(over, os.O_RDWR))
    until = monotonic() + DEADLINE_S
    while not (late := worker.answered_late()):
        assert monotonic() < until
    assert late == [request]
    assert worker.answered_late() == []


def test_a_bug_in_a_child_is_reported(worker: FileWorker) -> None:
    with pytest.raises(ChildFailedError, match="ValueError"):
        worker.ask_all(["fail", 1])
    assert worker.ask(2).message == 2  # which is not the answer to the 1


def test_an_error_of_the_system_is_the_answer(worker: FileWorker) -> None:
    refused, answer = worker.ask_all(["refuse", 1])
    assert isinstance(refused, PermissionError)
    assert str(refused) == f"[Errno {errno.EACCES}] It is not yours"
    assert results([answer]) == [1]
    with pytest.raises(PermissionError, match="It is not yours"):
        worker.ask("refuse")


def test_the_number_of_abandoned_children_is_limited(over: Path) -> None:
    silent = "wait for", str(over)
    with FileWorker(Task, patience_s=PATIENCE_S, most_left=2) as worker:
        answers = worker.ask_all([silent, silent, "pid", "pid"])
    assert all(isinstance(answer, NoAnswerError) for answer in answers)


def test_all_children_end_with_the_worker() -> None:
    with FileWorker(Task, patience_s=PATIENCE_S) as worker:
        first = worker.ask("pid").message
        with pytest.raises(NoAnswerError):
            worker.ask("end")
        second = worker.ask("pid").message
        assert (Path("/proc") / str(second) / "comm").read_text() == "ebpfprof-files\n"
    for pid in (first, second):
        await_end_of(pid)


def test_children_end_if_their_parent_is_killed() -> None:
    from_child, to_us = os.pipe()
    ours = os.fork()
    if not ours:
        worker = FileWorker(Task, patience_s=PATIENCE_S)
        os.write(to_us, str(worker.ask("pid").message).encode())
        signal.pause()
    pid = int(os.read(from_child, 32))
    os.kill(ours, signal.SIGKILL)
    os.waitpid(ours, 0)
    await_end_of(pid)
    for fd in (from_child, to_us):
        os.close(fd)


def test_several_threads_may_ask_a_worker(worker: FileWorker) -> None:
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(results(worker.ask_all(list(range(200))))))
        for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [list(range(200))] * 4
