"""Files of /proc/PID: what is gone is empty."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ebpfprof.process.proc_files import ProcFiles


def test_files_of_this_process(tmp_path: Path) -> None:
    ours = ProcFiles(os.getpid())
    assert ours.read("comm") == Path("/proc/self/comm").read_bytes()
    assert str(os.getpid()) in ours.names("task")
    assert ours.link("cwd") == os.getcwd()
    reads, writes = os.pipe()
    file = os.open(tmp_path, os.O_PATH)
    assert stat.S_ISFIFO(ours.file_type(f"fd/{reads}"))
    assert stat.S_ISDIR(ours.file_type(f"fd/{file}"))
    for fd in (reads, writes, file):
        os.close(fd)


def test_what_is_gone_is_empty() -> None:
    gone = ProcFiles(0)
    assert (gone.read("comm"), gone.names("fd"), gone.link("exe")) == (b"", [], "")
    assert gone.file_type("exe") == 0
