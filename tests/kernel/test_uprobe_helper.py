"""The process that starts the holders of probes, asked directly."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ebpfprof.errors import AttachFailed
from ebpfprof.kernel import probe_holders, syscalls, uprobe_helper, uprobe_links, uprobes
from ebpfprof.kernel.held_probes import ProbeContext
from ebpfprof.kernel.probe_text import KernelLog
from ebpfprof.kernel.uprobe_helper import Uprobe, UprobeHelper
from ebpfprof.kernel.uprobes import NO_PROGRAM
from ebpfprof.process.process import Target as Opened
from ebpfprof.system.channel import MessageChannel
from tests.go_target import inspect
from tests.kernel.kernel_state import has_probes, helpers, holders, probed
from tests.kernel.programs import program
from tests.kernel.unharmed import await_true
from tests.targets_run import Target


@pytest.fixture
def helper() -> Iterator[UprobeHelper]:
    uses_links = uprobe_links.is_offered()
    kept = UprobeHelper(uses_links=uses_links)
    yield kept
    kept.detach()
    assert kept.failure is None  # it lives
    kept.close()


def test_attaching_no_probes_is_allowed(helper: UprobeHelper) -> None:
    helper.attach(0, 0, os.getpid(), [], {}, anchor=(0, 0), uses_links=False)


def test_an_unexpected_error_is_reported(helper: UprobeHelper) -> None:
    program = syscalls.load_noop("kprobe", syscalls.TRACE_UPROBE_MULTI)
    no_pid: Any = "x"
    probes = [Uprobe("f", offset=0, address=0, cookie=0)]
    try:
        with pytest.raises(AttachFailed, match=r"attaches probes failed: .*TypeError"):
            helper.attach(
                0, program, no_pid, probes, {"f": program}, anchor=(0, 0), uses_links=True
            )
    finally:
        os.close(program)


def test_threads_that_wait_have_their_probes_detached_together(
    helper: UprobeHelper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes as long for many as for one."""
    asked: list[list[int]] = []
    begun, may_go_on = threading.Event(), threading.Event()

    def ask(channel: MessageChannel, request: str, fds: Any, **arguments: Any) -> None:  # noqa: ANN401 - as MessageChannel has it
        assert request == "detach"
        asked.append(arguments["groups"])
        begun.set()
        may_go_on.wait()

    with monkeypatch.context() as patched:
        patched.setattr(MessageChannel, "ask", ask)
        threads = [threading.Thread(target=helper.detach, args=([group],)) for group in range(6)]
        threads[0].start()
        begun.wait()
        for thread in threads[1:]:
            thread.start()
        while len(helper._leaving[False]) < len(threads) - 1:
            pass
        may_go_on.set()
        for thread in threads:
            thread.join()
    assert asked == [[0], [1, 2, 3, 4, 5]]


def test_a_holder_that_is_to_last_takes_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes a shell, under the same name; its probes stay, and are detached as ever.

    Those of a window stay what they are, and the anchor's holder is there for the pauses between.
    """
    monkeypatch.setattr(probe_holders, "LONG_MS", 600_000)  # not because it has lasted
    uses_links = uprobe_links.is_offered()
    nothing = syscalls.load_noop("kprobe", uprobes.attach_type(uses_links=uses_links))
    with Target.start(program("pingpong")) as running, Opened(running.pid) as target:
        go = inspect(target)
        anchor, wake = (
            (go.file_offset(pc), pc + go.load_bias) for pc in (go.sites.anchor_pc, go.sites.wake_pc)
        )
        kept = UprobeHelper(uses_links=uses_links)
        probes = [Uprobe("f", *wake, cookie=0)]
        put_in = partial(kept.attach, 0, target.exe_fd, running.pid, probes, {"f": nothing})
        put_in(anchor=anchor, uses_links=uses_links)
        held = only_holders()
        assert len(held) == 1
        await_true(lambda: all(_is_shell(each) for each in held), "they are no shells")
        assert all(_own_kib(each) < 600 for each in held)  # 1,900 before
        assert {Path(f"/proc/{each}/comm").read_text() for each in held} == {"ebpfprof-holder\n"}
        assert all("NoNewPrivs:\t1" in Path(f"/proc/{each}/status").read_text() for each in held)
        assert has_probes(running.pid)
        kept.detach([0], for_a_while=True)
        assert list(probed(running.pid)) == [go.sites.anchor_pc]
        (with_anchor,) = only_holders()
        await_true(lambda: _is_shell(with_anchor), "the anchor's holder is no shell")
        put_in(anchor=anchor, uses_links=uses_links)
        of_window = [holder for holder in only_holders() if holder != with_anchor]
        assert len(of_window) == 1
        assert not _is_shell(of_window[0])
        kept.detach([0])
        assert not has_probes(running.pid)
        assert kept.failure is None
        kept.close()
    os.close(nothing)


def only_holders() -> list[int]:
    """The pids of what holds the probes of our helper."""
    return [holder for holder in holders(os.getpid()) if holder not in helpers(os.getpid())]


def _is_shell(pid: int) -> bool:
    """Whether it is one, and has given itself its name."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    return words.startswith(b"/bin/sh") and b"ebpfprof" in Path(f"/proc/{pid}/comm").read_bytes()


def _own_kib(pid: int) -> int:
    """The memory that a process shares with no other."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_profiler_that_ends_before_its_answer_leaves_no_probe(*, is_answered: bool) -> None:
    """The helper undoes the last request before it ends, not some time after.

    It ends before the answer, or with the answer unread: then the helper's socket is reset.
    """
    uses_links = uprobe_links.is_offered()
    nothing = syscalls.load_noop("kprobe", uprobes.attach_type(uses_links=uses_links))
    until, until_writer = os.pipe()
    with Target.start(program("pingpong")) as running, Opened(running.pid) as target:
        go = inspect(target)
        anchor, wake = (
            (go.file_offset(pc), pc + go.load_bias) for pc in (go.sites.anchor_pc, go.sites.wake_pc)
        )
        arguments = {
            "group": 0,
            "pid": running.pid,
            "anchor": anchor,
            "uses_links": uses_links,
            "probes": [(*wake, 0, 0)],
        }
        profiler, asked = MessageChannel.pair("the helper")
        request = {"request": "attach", "arguments": arguments}
        profiler.send(request, [target.exe_fd, nothing])
        if not is_answered:
            profiler.close()
        context = ProbeContext(
            uses_links, nothing if uses_links else NO_PROGRAM, until, KernelLog("none")
        )
        ends = threading.Thread(target=_close_once_answered, args=(profiler,))
        ends.start()
        with asked:
            uprobe_helper._answer_all(MessageChannel(asked, "the profiler"), context)
        ends.join()
        assert not has_probes(running.pid)
    for fd in (until, until_writer, nothing):
        os.close(fd)


def _close_once_answered(profiler: MessageChannel) -> None:
    """Close the channel once there is an answer, unread; nothing happens if it is closed."""
    if profiler.fileno() >= 0:
        answer = select.poll()
        answer.register(profiler, select.POLLIN)
        answer.poll()
        profiler.close()
