"""The process that starts the holders of probes: how it ends, and that its end is noticed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.errors import AttachFailed, EbpfprofError
from ebpfprof.kernel.uprobe_helper import NAME, Uprobe, UprobeHelper
from tests.kernel.unharmed import await_true


def helpers() -> set[int]:
    """Our children with its name."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {
        int(pid) for pid in found.split() if Path(f"/proc/{pid}/comm").read_text() == f"{NAME}\n"
    }


@pytest.fixture
def helper() -> Iterator[UprobeHelper]:
    with_helper = UprobeHelper(uses_links=False)
    yield with_helper
    with_helper.close()
    assert helpers() == set()


def attach(helper: UprobeHelper, *probes: Uprobe) -> None:
    helper.attach(1, 0, os.getpid(), probes, {"f": 0}, anchor=(0, 0), uses_links=False)


def test_without_probes_there_is_nothing_to_do(helper: UprobeHelper) -> None:
    attach(helper)
    helper.detach()
    helper.detach([1, 2])
    helper.detach([1], for_a_while=True)
    assert helper.failure is None


def test_it_outlives_what_a_terminal_sends(helper: UprobeHelper) -> None:
    helper.detach()
    (pid,) = helpers()
    assert os.getsid(pid) == pid
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    helper.detach()
    assert helper.failure is None
    assert helpers() == {pid}


def test_a_killed_helper_is_noticed(helper: UprobeHelper) -> None:
    helper.detach()
    (pid,) = helpers()
    os.kill(pid, signal.SIGKILL)
    await_true(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) is not None, "it lives")
    with pytest.raises(AttachFailed, match="was killed, which detached them"):
        attach(helper, Uprobe("f", 0, 0, 0))
    for groups in (None, [1]):
        helper.failure = None
        helper.detach(groups)
        assert "was killed, which detached them" in str(helper.failure)


def test_what_can_not_be_probed_leaves_nothing(helper: UprobeHelper) -> None:
    """File 0 and program 0 are neither an executable nor a BPF program."""
    with pytest.raises(EbpfprofError):
        attach(helper, Uprobe("f", 0, 0, 0))
    helper.detach()
    assert helper.failure is None
