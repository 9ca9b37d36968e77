"""Processes that hold probes, with files in place of probes: they need no rights."""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ebpfprof.errors import AttachFailed, KernelUnsupported
from ebpfprof.kernel import probe_holders
from ebpfprof.kernel.probe_holders import NAME, Holder, OpenProbes
from tests.kernel.unharmed import await_true


@dataclass
class Pipes:
    """What ends holders: the writing end of `until`. `gone` is readable once all have ended."""

    until: int
    ends: int
    gone: int
    stays_open: int

    def hold(
        self, opens: OpenProbes, *, fds: tuple[int, ...] = (), is_to_last: bool = False
    ) -> Holder:
        return Holder(
            opens, fds=fds, until=self.until, stays_open=self.stays_open, is_to_last=is_to_last
        )

    def end(self) -> None:
        os.close(self.ends)
        self.ends = -1

    def forget(self) -> None:
        """Close our end of the pipe that holders keep open."""
        os.close(self.stays_open)
        self.stays_open = -1

    def are_gone(self) -> bool:
        return bool(select.select([self.gone], [], [], 0)[0])


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes(*os.pipe(), *os.pipe())
    yield made
    for fd in (made.until, made.ends, made.gone, made.stays_open):
        if fd >= 0:
            os.close(fd)


def nothing(_: Mapping[int, int]) -> None:
    pass


def children() -> set[int]:
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in found.split()}


def test_a_holder_has_the_given_files_until_it_is_ended(pipes: Pipes, tmp_path: Path) -> None:
    file = os.open(tmp_path / "noted", os.O_RDWR | os.O_CREAT)

    def note(fds: Mapping[int, int]) -> None:
        os.write(fds[file], b"in")

    holder = pipes.hold(note, fds=(file,))
    assert holder.await_in() is None
    assert (tmp_path / "noted").read_bytes() == b"in"
    assert not holder.has_ended()
    pipes.forget()
    assert not pipes.are_gone()
    assert probe_holders.end([holder])
    assert pipes.are_gone()
    os.close(file)


@pytest.mark.parametrize(
    ("error", "raised", "text"),
    [
        (KernelUnsupported("Too old."), KernelUnsupported, "Too old."),
        (OSError(errno.EBUSY, "Busy"), AttachFailed, "Busy"),
        (KeyError("k"), AttachFailed, "KeyError"),
    ],
)
def test_why_probes_are_not_in_is_known(
    pipes: Pipes, error: Exception, raised: type[Exception], text: str
) -> None:
    def fail(_: Mapping[int, int]) -> None:
        raise error

    holder = pipes.hold(fail)
    failure = holder.await_in()
    assert type(failure) is raised
    assert text in str(failure)
    assert probe_holders.end([holder])


def test_a_holder_that_is_killed_first_is_noticed(pipes: Pipes) -> None:
    def end(_: Mapping[int, int]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    killed, fine = pipes.hold(end), pipes.hold(nothing)
    failure = killed.await_in()
    assert str(failure) == str(probe_holders.killed())
    assert fine.await_in() is None
    await_true(killed.has_ended, "it does not end")
    assert not probe_holders.end([fine, killed])


@pytest.mark.parametrize("is_to_last", [False, True])
def test_holders_end_when_the_pipe_has_no_writer(pipes: Pipes, is_to_last: bool) -> None:
    holder = pipes.hold(nothing, is_to_last=is_to_last)
    assert holder.await_in() is None
    assert not holder.has_ended()
    pipes.end()
    await_true(holder.has_ended, "it does not end")
    assert not probe_holders.end([holder])
    pipes.forget()
    assert pipes.are_gone()


def test_a_holder_that_is_to_last_becomes_a_shell(pipes: Pipes) -> None:
    before = children()
    holder, other = pipes.hold(nothing, is_to_last=True), pipes.hold(nothing)
    pids = sorted(children() - before)
    assert (holder.await_in(), other.await_in()) == (None, None)
    shell = os.path.realpath("/bin/sh")
    await_true(lambda: os.readlink(f"/proc/{pids[0]}/exe") == shell, "it becomes no shell")
    await_true(
        lambda: Path(f"/proc/{pids[0]}/comm").read_text() == f"{NAME}\n", "it has another name"
    )
    assert os.readlink(f"/proc/{pids[1]}/exe") == os.readlink("/proc/self/exe")
    assert "NoNewPrivs:\t1" in Path(f"/proc/{pids[0]}/status").read_text()
    assert probe_holders.end([holder, other])
