"""Probes held by processes of their own; and breakpoints that the kernel could not remove."""

from __future__ import annotations

import ctypes
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from ebpfprof.errors import AttachFailed
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.kernel import held_probes, perf_events, syscalls, uprobe_links
from ebpfprof.kernel.held_probes import HeldProbes, ProbeContext
from ebpfprof.kernel.probe_holders import NAME
from ebpfprof.kernel.probe_text import KernelLog
from ebpfprof.kernel.uprobes import NO_PROGRAM, ProbePoint
from ebpfprof.process.process import Target as Opened
from tests.go_target import inspect
from tests.kernel.kernel_state import has_probes, probed
from tests.kernel.programs import program
from tests.targets_run import Target

TRIES = 20
PR_SET_NAME = 15
KINDS = [False, *([True] if uprobe_links.is_offered() else [])]


@pytest.fixture
def go() -> Iterator[GoTarget]:
    with Target.start(program("pingpong")) as running, Opened(running.pid) as target:
        yield inspect(target)
        assert not has_probes(running.pid)


@pytest.fixture(params=KINDS, ids=["perf events", "links"][: len(KINDS)])
def context(request: pytest.FixtureRequest) -> Iterator[ProbeContext]:
    uses_links = request.param
    nothing = (
        syscalls.load_noop("kprobe", syscalls.TRACE_UPROBE_MULTI) if uses_links else NO_PROGRAM
    )
    until, writer = os.pipe()
    yield ProbeContext(uses_links, nothing, until, KernelLog(NAME))
    for fd in (until, writer, *([nothing] if uses_links else [])):
        os.close(fd)


def point(go: GoTarget, pc: int, context: ProbeContext) -> ProbePoint:
    return ProbePoint(go.file_offset(pc), pc + go.load_bias, context.noop_program)


def held(go: GoTarget, context: ProbeContext) -> HeldProbes:
    """Probes where goroutines begin to wait, and the anchor."""
    anchor = point(go, go.sites.anchor_pc, context)
    exe_fd = os.dup(go.target.exe_fd)
    found = HeldProbes(go.target.pid, exe_fd, context, (anchor.offset, anchor.address))
    found.attach([point(go, park.start_pc, context) for park in go.sites.parks], targets=1)
    return found


def not_anchors(go: GoTarget) -> list[int]:
    """Runtime addresses of breakpoints in the target, but for the anchor's."""
    return sorted(at + go.load_bias for at in probed(go.target.pid) if at != go.sites.anchor_pc)


def leak(go: GoTarget, context: ProbeContext) -> list[int]:
    """Leave breakpoints in the target, as a profiler does that is killed while it closes probes.

    It is called as the holders are. Returns runtime addresses.
    """
    points = [point(go, park.start_pc, context) for park in go.sites.parks]
    for _ in range(TRIES):
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            _close_probes(go, context, points, writes)
        os.close(writes)
        assert os.read(reads, 1) == b"x"
        while len(not_anchors(go)) == len(points):
            pass
        os.kill(child, signal.SIGKILL)
        os.close(reads)
        os.waitpid(child, 0)
        if left := not_anchors(go):
            return left
    raise AssertionError(f"none was left behind in {TRIES} tries")


def _close_probes(
    go: GoTarget, context: ProbeContext, points: list[ProbePoint], writes: int
) -> None:
    """Open them, say so, and close them by one system call."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_NAME, NAME.encode(), 0, 0, 0)
        path, pid = f"/proc/self/fd/{go.target.exe_fd}", go.target.pid
        for each in points:
            if context.uses_links:
                fd = uprobe_links.link(context.noop_program, path, [(each.offset, 0)], pid)
            else:
                fd = perf_events.open_uprobe(path, each.offset, pid)
        os.write(writes, b"x")
        os.closerange(fd - len(points) + 1, fd + 1)
    finally:
        os._exit(0)


@pytest.mark.alone
def test_the_next_probe_removes_a_leaked_breakpoint(go: GoTarget, context: ProbeContext) -> None:
    probes = held(go, context)
    held_probes.detach([probes], anchors_stay=True)
    left = leak(go, context)
    assert context.kernel_log.leaks()
    assert set(left) <= set(probes._text.breakpoints())
    held_probes.detach([probes], anchors_stay=False)
    assert probed(go.target.pid) == {}


@pytest.mark.alone
def test_a_breakpoint_that_stays_is_reported(go: GoTarget, context: ProbeContext) -> None:
    probes = held(go, context)
    held_probes.detach([probes], anchors_stay=True)
    left = leak(go, context)

    # The kernel takes no more probes: this is no program.
    probes.context = replace(context, uses_links=True, noop_program=context.until)
    with pytest.raises(AttachFailed, match="could not remove") as reported:
        held_probes.detach([probes], anchors_stay=True)
    assert [int(each, 16) for each in re.findall("0x[0-9a-f]+", str(reported.value))] == left
    probes.context = context
    held_probes.detach([probes], anchors_stay=False)  # now they go


def test_breakpoints_of_another_profiler_are_not_reported(
    go: GoTarget, context: ProbeContext
) -> None:
    first, second = held(go, context), held(go, context)
    held_probes.detach([first], anchors_stay=False)
    assert has_probes(go.target.pid)
    held_probes.detach([second], anchors_stay=False)


def test_a_failed_attach_leaves_nothing(go: GoTarget, context: ProbeContext) -> None:
    anchor = point(go, go.sites.anchor_pc, context)
    exe_fd = os.dup(go.target.exe_fd)
    probes = HeldProbes(go.target.pid, exe_fd, context, (anchor.offset, anchor.address))
    good = point(go, go.sites.wake_pc, context)
    bad = ProbePoint(1 << 40, 0, context.noop_program)
    with pytest.raises(AttachFailed):
        probes.attach([good, bad], targets=1)
    assert probed(go.target.pid) == {}
    held_probes.detach([probes], anchors_stay=False)


def test_probes_are_detached_when_their_starter_ends(go: GoTarget, context: ProbeContext) -> None:
    """The anchor, too, as the last one."""
    reads, writes = os.pipe()
    starter = os.fork()
    if not starter:
        with suppress(BaseException):  # a child never returns
            until, _writer = os.pipe()
            held(
                go,
                ProbeContext(context.uses_links, context.noop_program, until, context.kernel_log),
            )
            os.write(writes, b"x")
            signal.pause()
        os._exit(0)
    os.close(writes)
    assert os.read(reads, 1) == b"x"
    assert len(probed(go.target.pid)) == len(go.sites.parks) + 1
    os.kill(starter, signal.SIGKILL)
    os.waitpid(starter, 0)
    while go.sites.anchor_pc in probed(go.target.pid):
        pass
    # Again: the memory at the other addresses was read before that at the anchor's.
    assert probed(go.target.pid) == {}
    os.close(reads)
