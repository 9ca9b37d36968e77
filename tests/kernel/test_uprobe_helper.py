"""The process that starts the holders of probes, asked directly."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from ebpfprof.errors import AttachFailed
from ebpfprof.goruntime.process import inspect
from ebpfprof.kernel import syscalls, uprobe_helper, uprobe_links, uprobes
from ebpfprof.kernel.held_probes import ProbeContext
from ebpfprof.kernel.probe_text import KernelLog
from ebpfprof.kernel.uprobe_helper import Uprobe, UprobeHelper
from ebpfprof.kernel.uprobes import NO_PROGRAM
from ebpfprof.process.process import Target as Opened
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.targets_run import Target


@pytest.fixture
def helper() -> Iterator[UprobeHelper]:
    uses_links = uprobe_links.is_offered()
    kept = UprobeHelper(uses_links=uses_links)
    yield kept
    kept.detach()
    assert kept.failure is None  # it lives
    kept.close()


def test_no_probes_are_none(helper: UprobeHelper) -> None:
    helper.attach(0, 0, os.getpid(), [], {}, anchor=(0, 0))


def test_an_error_that_nobody_thought_of_is_told(helper: UprobeHelper) -> None:
    program = syscalls.load_noop("kprobe", syscalls.TRACE_UPROBE_MULTI)
    no_pid: Any = "x"
    probes = [Uprobe("f", offset=0, address=0, cookie=0)]
    try:
        with pytest.raises(AttachFailed, match="A process that puts probes in failed: TypeError"):
            helper.attach(0, program, no_pid, probes, {"f": program}, anchor=(0, 0))
    finally:
        os.close(program)


def test_a_profiler_that_is_gone_before_the_answer_leaves_no_probe() -> None:
    """What it asked for last is undone before the helper ends, not some time after."""
    uses_links = uprobe_links.is_offered()
    nothing = syscalls.load_noop("kprobe", uprobes.attach_type(uses_links=uses_links))
    until, until_writer = os.pipe()
    with Target.start(program("pingpong")) as running, Opened(running.pid) as target:
        go = inspect(target)
        anchor, wake = (
            (go.file_offset(pc), pc + go.load_bias) for pc in (go.sites.anchor_pc, go.sites.wake_pc)
        )
        request = {"attach": 0, "pid": running.pid, "anchor": anchor, "probes": [(*wake, 0, 0)]}
        profiler, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        socket.send_fds(profiler, [json.dumps(request).encode()], [target.exe_fd, nothing])
        profiler.close()
        context = ProbeContext(
            uses_links, nothing if uses_links else NO_PROGRAM, until, KernelLog("none")
        )
        with asked:
            uprobe_helper._answer_all(asked, context)
        assert not has_probes(running.pid)
    for fd in (until, until_writer, nothing):
        os.close(fd)
