"""Traces of the seconds before a trouble, of processes that can't be traced."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ebpfprof.commands.seconds_before import SecondsBefore
from ebpfprof.errors import NoSuchProcess
from ebpfprof.goruntime.open_processes import OpenOptions


def test_a_process_that_can_not_be_traced_has_a_reason_and_affects_no_other() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    before = SecondsBefore([ended.pid], OpenOptions(), last_s=1.0, max_overhead=5.0)
    with before:
        before.start()
        with pytest.raises(NoSuchProcess):
            before.timeline(ended.pid)
