"""A process that is read: this one, and children that end or wait."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ebpfprof.errors import NoSuchProcess, TargetGone, UnsupportedTarget
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.process.process import Target, require_process

RECORD = np.dtype([("one", "<u8"), ("two", "<u4")])


@pytest.fixture
def cat() -> Iterator[subprocess.Popen[bytes]]:
    """A child that waits for input."""
    # It has begun once it has answered.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"x")
        child.stdin.flush()
        child.stdout.read(1)
        yield child


@pytest.fixture
def ours() -> Iterator[Target]:
    with Target(os.getpid()) as target:
        yield target


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


def test_a_process_has_a_name_and_a_file(cat: subprocess.Popen[bytes]) -> None:
    with Target(cat.pid) as target:
        assert target.name == Path(target.exe_name).name
        assert os.path.samestat(os.fstat(target.exe_fd), os.stat(target.exe_name))
        assert target.ending() is None
        target.require_running()
        target.exe_name = "/srv/a b/grüße " + 100 * "x"
        assert target.name == "gr__e_" + 58 * "x"
        target.exe_name = "/"
        assert target.name == "unnamed"


def test_the_end_of_a_process_is_noticed(cat: subprocess.Popen[bytes]) -> None:
    with Target(cat.pid) as target:
        end(cat)
        ending = target.ending()
        assert ending is not None
        assert (ending.text, ending.is_exec) == (f"process {cat.pid} ended", False)
        with pytest.raises(TargetGone, match=f"process {cat.pid} ended while the probes"):
            target.require_running()
        for read in (target.innermost_pid, target.pid_namespace):
            with pytest.raises(TargetGone):
                read()
        assert (target.cpu_ns(), target.kernel_ns(), target.peak_rss_bytes()) == (None, None, 0)
        assert target.executable_lines() == ()
        assert target.tracer() == ""
        with pytest.raises(TargetGone):
            _ = target.memory
    with pytest.raises(NoSuchProcess, match=f"There is no process {cat.pid}"):
        Target(cat.pid)


def test_memory_of_a_process_that_ended_is_gone(cat: subprocess.Popen[bytes]) -> None:
    with Target(cat.pid) as target:
        start = target.executable_lines()[0].start
        assert len(target.memory.read(start, 16)) == 16
        end(cat)
        with pytest.raises(TargetGone, match=f"memory of process {cat.pid} can no longer be read"):
            target.memory.read(start, 16)
        with pytest.raises(TargetGone):
            target.memory.read_records(np.array([start], np.uint64), RECORD)


def test_a_thread_and_a_zombie_are_refused(cat: subprocess.Popen[bytes]) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        for opened in (Target, require_process):
            with pytest.raises(UnsupportedTarget, match=f"is a thread of process {os.getpid()}"):
                opened(thread.native_id or 0)
    finally:
        done.set()
        thread.join()
    cat.kill()
    os.waitid(os.P_PID, cat.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(UnsupportedTarget, match="a zombie"):
        Target(cat.pid)
    require_process(os.getpid())


def test_usage_of_a_process(ours: Target) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    cpu_ns, kernel_ns, peak = ours.cpu_ns(), ours.kernel_ns(), ours.peak_rss_bytes()
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert cpu_ns is not None
    assert kernel_ns is not None
    used_ns = [1e9 * (usage.ru_utime + usage.ru_stime) for usage in (before, after)]
    tick_ns = 2e9 / os.sysconf("SC_CLK_TCK")
    assert used_ns[0] - tick_ns <= cpu_ns <= used_ns[1] + tick_ns
    assert 1e9 * before.ru_stime - tick_ns <= kernel_ns <= 1e9 * after.ru_stime + tick_ns
    # The kernel's two counters of memory are not exact to the page.
    assert peak == pytest.approx(1024 * after.ru_maxrss, rel=0.05)


def test_facts_of_a_process(ours: Target) -> None:
    assert ours.innermost_pid() == int(os.readlink("/proc/self"))
    status = os.stat("/proc/self/ns/pid")
    assert ours.pid_namespace() == (status.st_dev, status.st_ino)
    assert ours.clock_ahead_ns() == 0
    assert b"PATH=" + os.environb[b"PATH"] in ours.environment()
    assert ours.tracer() == ""
    assert ours.reading_pid == os.getpid()


def test_executable_mappings_begin_with_those_of_the_program(ours: Target) -> None:
    lines = ours.executable_lines()
    assert lines == tuple(sorted(lines, key=lambda line: line.start))
    name = next(line.path for line in reversed(lines) if line.inode)
    of_file = next(line for line in lines if line.path == name)
    status = os.stat(name)
    assert (of_file.inode, of_file.device) == (status.st_ino, status.st_dev)
    mappings = ours.executable_mappings(name, "c0ffee")
    assert (mappings[0].filename, mappings[0].build_id) == (name, "c0ffee")
    assert {one.build_id for one in mappings if one.filename != name} == {""}
    assert len(mappings) == len(lines)
    assert of_file.offset == mappings[0].offset


def test_each_executable_line_is_read(cat: subprocess.Popen[bytes]) -> None:
    text = Path(f"/proc/{cat.pid}/maps").read_text().splitlines()
    executable = [line for line in text if line.split()[1][2] == "x"]
    with Target(cat.pid) as target:
        lines = target.executable_lines()
        assert [f"{line.start:08x}-{line.limit:08x}" for line in lines] == [
            line.split()[0] for line in executable
        ]
        assert target.executable_lines() is lines


def test_memory_is_read_where_it_is_mapped(ours: Target) -> None:
    data = ctypes.create_string_buffer(b"seven bytes", 4096)
    address = ctypes.addressof(data)
    assert ours.memory is ours.memory
    assert ours.memory.read(address, 7) == b"seven b"
    assert ours.memory.read(address, 0) == b""
    for nowhere in (0, 8, -1, 1 << 63, (1 << 64) - 8):
        with pytest.raises(UnreadableMemory, match=f"has no 7 bytes of memory at {nowhere:#x}"):
            ours.memory.read(nowhere, 7)


@pytest.mark.parametrize("unreadable", [(), (0,), (1, 2), (2500,), (1023, 1024, 2999)])
def test_many_structs_are_read_and_unreadable_ones_are_zero(
    ours: Target, unreadable: tuple[int, ...]
) -> None:
    there = np.zeros(3000, RECORD)
    there["one"], there["two"] = np.arange(1, 3001), 7
    addresses = there.ctypes.data + RECORD.itemsize * np.arange(3000, dtype=np.uint64)
    expected = there.copy()
    for index in unreadable:
        addresses[index], expected[index] = 8, np.zeros(1, RECORD)[0]
    assert (ours.memory.read_records(addresses, RECORD) == expected).all()


def test_a_file_that_was_deleted_keeps_its_name(tmp_path: Path) -> None:
    copy = tmp_path / "program"
    copy.write_bytes(Path("/bin/cat").read_bytes())
    copy.chmod(0o755)
    with subprocess.Popen([copy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(b"x")
        child.stdin.flush()
        child.stdout.read(1)
        copy.unlink()
        with Target(child.pid) as target:
            assert target.exe_name == str(copy)
            line = next(line for line in target.executable_lines() if line.path == str(copy))
            assert line.name == f"{copy} (deleted)"
            with target.open_elf() as elf:
                assert target.load_bias(elf.entry) == line.start - line.offset
    assert sys.byteorder == "little"
