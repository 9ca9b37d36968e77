"""Targets that cannot be recorded, or are not what they seem: a message and an exit code."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode, UnsupportedGo, UnsupportedTarget
from ebpfprof.process.process import Target as Process
from symbolizer import ElfFile
from tests.builds import in_full, versions
from tests.go_target import inspect
from tests.kernel.kernel_state import children
from tests.kernel.programs import (
    TARGETS,
    changed,
    pclntab_parts,
    program,
    section,
    with_version,
    without_build_info,
)
from tests.kernel.refusal import IMPOSSIBLE_PID, refused
from tests.kernel.tampered import command
from tests.recorder import Finished, Recorder, names_in, only_profile, recording, run
from tests.targets_run import Target
from tests.toolchains import toolchain

CAT = Path("/bin/cat")


@contextmanager
def cat(copy: Path) -> Iterator[int]:
    """The pid of a program that is not Go's, started from a file of that name."""
    shutil.copy(CAT, copy)
    with subprocess.Popen([copy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"ready\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.stdin.close()


def test_a_missing_process_is_refused(tmp_path: Path) -> None:
    output = refused(ExitCode.NO_SUCH_PROCESS, "--pid", str(IMPOSSIBLE_PID), folder=tmp_path)
    assert f"no process {IMPOSSIBLE_PID}" in output
    assert "pgrep" in output


@pytest.mark.parametrize("pid", ["0", "-1", "x", "", "1,,2", "99999999999999999999"])
def test_an_invalid_pid_is_a_usage_error(pid: str, tmp_path: Path) -> None:
    finished = run(f"--pid={pid}", folder=tmp_path)
    assert finished.code == ExitCode.USAGE
    assert "--pid" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_thread_is_refused_and_its_process_named(tmp_path: Path) -> None:
    with Target.start(program("checker")) as target:
        threads = {int(name) for name in os.listdir(f"/proc/{target.pid}/task")} - {target.pid}
        output = refused(ExitCode.UNSUPPORTED_TARGET, "--pid", str(max(threads)), folder=tmp_path)
    assert f"is a thread of process {target.pid}" in output
    assert f"--pid {target.pid}" in output


def test_a_kernel_thread_is_refused(tmp_path: Path) -> None:
    assert Path("/proc/2/comm").read_text() == "kthreadd\n"
    output = refused(ExitCode.UNSUPPORTED_TARGET, "--pid", "2", folder=tmp_path)
    assert "a thread of the kernel" in output


def test_a_zombie_is_refused(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        output = refused(ExitCode.UNSUPPORTED_TARGET, "--pid", str(process.pid), folder=tmp_path)
    assert "zombie" in output


def test_a_program_that_is_not_go_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    with cat(tmp_path / "bin" / "cat") as pid:
        output = refused(ExitCode.NOT_GO_PROGRAM, "--pid", str(pid), folder=tmp_path)
    assert "is not a Go program" in output
    assert "It has no child that you could record instead." in output


def test_go_children_of_a_refused_program_are_named(tmp_path: Path) -> None:
    script = '"$0"; true'  # not exec: the shell stays
    with Target.start(Path("/bin/sh"), "-c", script, str(program("sleeper"))) as shell:
        (child,) = children(shell.pid)
        output = refused(ExitCode.NOT_GO_PROGRAM, "--pid", str(shell.pid), folder=tmp_path)
    assert f"Perhaps you mean one of its children: {child} (sleeper)." in output


def test_names_reach_no_terminal_as_escape_sequences(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    with cat(tmp_path / "bin" / "\x1b[31mred\x1b]0;title\x07\n\u202egnp") as pid:
        output = refused(ExitCode.NOT_GO_PROGRAM, "--pid", str(pid), folder=tmp_path)
    assert r"\x1b[31mred\x1b]0;title\x07\n\u202egnp" in output


@pytest.mark.parametrize(
    ("minor", "version"),
    [
        ("1.27", "go1.28"),
        *in_full(("1.27", "devel go1.28-0123456789")),
    ],
)
def test_an_unknown_go_version_is_refused_by_name(minor: str, version: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "out").mkdir()
    copy = with_version(program("nopprof", minor), tmp_path / "bin", version)
    with Target.start(copy) as target:
        pid = str(target.pid)
        output = refused(ExitCode.UNSUPPORTED_GO, "--pid", pid, folder=tmp_path / "out")
        assert version in output
        assert "go1.17 to go1.27" in output
        assert "--allow-unknown-go" in output

        finished = profile_of_nopprof(target, tmp_path / "out", "--allow-unknown-go")
    assert f"ebpfprof: {version} is not known and was read as Go " in finished.stderr
    assert any(
        version in comment and "not known" in comment
        for comment in only_profile(tmp_path / "out").comments
    )


def test_a_pclntab_of_go_1_15_is_refused_by_name(tmp_path: Path) -> None:
    table_at = pclntab_parts(program("sleeper")).at
    old = changed(program("sleeper"), tmp_path, (table_at, struct.pack("<I", 0xFFFFFFFB)))
    with running_as(old) as process, pytest.raises(UnsupportedGo, match=r"Go 1\.2 to 1\.15"):
        inspect(process)


@pytest.mark.parametrize("minor", versions("1.19", "1.27"))
def test_without_build_information_the_version_comes_from_the_runtime(
    minor: str, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "out").mkdir()
    copy = without_build_info(program("nopprof", minor), tmp_path / "bin")
    with Target.start(copy) as target:
        profile_of_nopprof(target, tmp_path / "out")
    comment = only_profile(tmp_path / "out").comments[0]
    assert f"go{toolchain(minor).version}" in comment


def test_a_32_bit_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    copy = tmp_path / "sleeper"
    source = TARGETS / "sleeper"
    toolchain("1.27").go("build", "-o", copy, ".", cwd=source, env={"GOARCH": "386"})
    with Target.start(copy) as target:
        output = refused(
            ExitCode.UNSUPPORTED_TARGET, "--pid", str(target.pid), folder=tmp_path / "out"
        )
    assert "32-bit" in output
    assert "only 64-bit x86-64 programs" in output


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    machine_at = 18  # e_machine
    foreign = changed(program("sleeper"), tmp_path, (machine_at, struct.pack("<H", 183)))
    with running_as(foreign) as process, pytest.raises(UnsupportedTarget, match="AArch64"):
        inspect(process)


@contextmanager
def running_as(file: Path) -> Iterator[Process]:
    """A process whose executable seems to be `file`, which the kernel would not start."""
    with Target.start(program("sleeper")) as target, Process(target.pid) as process:
        fd = os.open(file, os.O_RDONLY)
        os.dup2(fd, process.exe_fd)
        os.close(fd)
        yield process


# Bytes that neither the kernel nor the runtime looks at before the program runs.
SECTIONS_BEYOND_THE_END = (40, struct.pack("<Q", 1 << 62))  # e_shoff
MANY_SECTIONS = (60, b"\xff\xff")  # e_shnum
NO_SECTION_NAMES = (62, b"\xff\xfe")  # e_shstrndx


@pytest.mark.parametrize(
    "change",
    [
        SECTIONS_BEYOND_THE_END,
        *in_full((MANY_SECTIONS,), (NO_SECTION_NAMES,)),
    ],
)
def test_corrupt_section_headers_are_ignored(change: tuple[int, bytes], tmp_path: Path) -> None:
    recorded_all_the_same(changed(program("nopprof"), tmp_path, change), tmp_path)


@pytest.mark.full
def test_a_file_cut_behind_its_loaded_bytes_is_recorded(tmp_path: Path) -> None:
    size = loaded_bytes(program("nopprof"))
    recorded_all_the_same(changed(program("nopprof"), tmp_path, size=size), tmp_path)


def test_a_file_cut_within_its_loaded_bytes_is_refused(tmp_path: Path) -> None:
    # The kernel fills up the last page.
    size = loaded_bytes(program("nopprof")) - 8
    (tmp_path / "out").mkdir()
    with Target.start(changed(program("nopprof"), tmp_path, size=size)) as target:
        pid = str(target.pid)
        output = refused(ExitCode.CORRUPT_BINARY, "--pid", pid, folder=tmp_path / "out")
    assert "truncated" in output


def loaded_bytes(file: Path) -> int:
    with ElfFile.open(file) as elf:
        return max(segment.offset + segment.filesz for segment in elf.segments)


@pytest.mark.full
def test_garbage_for_build_information_is_ignored(tmp_path: Path) -> None:
    at, _ = section(program("nopprof"), ".go.buildinfo")
    garbage = (at + 15, b"\xff" * 100)
    recorded_all_the_same(changed(program("nopprof"), tmp_path, garbage), tmp_path)


def recorded_all_the_same(copy: Path, folder: Path) -> None:
    out = folder / "out"
    out.mkdir()
    with Target.start(copy) as target:
        profile_of_nopprof(target, out)


@pytest.mark.parametrize("part", ["names", "units"])
def test_corrupt_runtime_tables_are_refused(part: str, tmp_path: Path) -> None:
    parts = pclntab_parts(program("nopprof"))
    begin, end = parts.names if part == "names" else parts.units
    copy = changed(program("nopprof"), tmp_path, (begin, b"\x7f" * (end - begin)))
    (tmp_path / "out").mkdir()
    with Target.start(copy) as target:
        refused(ExitCode.CORRUPT_BINARY, "--pid", str(target.pid), folder=tmp_path / "out")


def test_corrupt_names_are_written_as_addresses(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "out").mkdir()
    unit_at = pclntab_parts(program("nopprof")).units_by_function["main.handOver"]
    broken = (unit_at, struct.pack("<I", 0x7FFFFFFF))
    copy = changed(program("nopprof"), tmp_path / "bin", broken)
    with Target.start(copy) as target:
        finished = record_nopprof(target, tmp_path / "out")
    assert finished.code == ExitCode.CORRUPT_BINARY
    assert b"Written: nopprof-" in finished.stdout
    profile = only_profile(tmp_path / "out")
    assert any("names are missing" in comment for comment in profile.comments)
    # What can't be named is there by address, and counts.
    assert sum(sample.values[0] for sample in profile.samples) > 300
    assert any(not location.frames for sample in profile.samples for location in sample.locations)
    assert all(location.mapping for sample in profile.samples for location in sample.locations)


def record_nopprof(target: Target, folder: Path, *arguments: str) -> Finished:
    with recording(target.pid, folder, *arguments) as recorder:
        target.ask("go", "done")
        recorder.interrupt()
        return recorder.finish()


def profile_of_nopprof(target: Target, folder: Path, *arguments: str) -> Finished:
    """Record a run of nopprof and check that its waits are there."""
    finished = record_nopprof(target, folder, *arguments)
    assert finished.code == ExitCode.OK, finished.stderr
    functions = {
        frame.function
        for sample in only_profile(folder).samples
        for location in sample.locations
        for frame in location.frames
    }
    assert functions > {"main.handOver", "main.hold", "main.gather"}
    return finished


def test_a_profile_of_an_ended_target_is_written_with_a_message(tmp_path: Path) -> None:
    nopprof = program("nopprof")
    with Target.start(nopprof) as target, recording(target.pid, tmp_path) as recorder:
        target.ask("go", "done")
        target.close_input()
        target.wait()
        finished = recorder.finish()
    assert finished.code == ExitCode.OK
    output = f"process {target.pid} ended; the profile has everything until then."
    assert f"\nebpfprof: {output}\n" in finished.stderr
    profile = only_profile(tmp_path)
    assert f"ended early: process {target.pid} ended" in profile.comments
    assert sum(sample.values[0] for sample in profile.samples) > 300


@pytest.mark.full
def test_a_profile_of_a_killed_target_is_written(tmp_path: Path) -> None:
    checker = program("checker")
    with Target.start(checker) as target, recording(target.pid, tmp_path) as recorder:
        target.kill()
        finished = recorder.finish()
    assert finished.code == ExitCode.OK
    assert f"process {target.pid} ended" in finished.stderr
    only_profile(tmp_path)


@pytest.mark.parametrize("into", ["itself", *in_full("another program")])
def test_exec_ends_the_recording_with_a_message(into: str, tmp_path: Path) -> None:
    ticker = program("ticker")
    program_after = str(ticker) if into == "itself" else "/bin/cat"
    with Target.start(ticker, program_after) as target, recording(target.pid, tmp_path) as recorder:
        target.ask("wait", "done")
        target.say("exec")
        finished = recorder.finish()
    assert finished.code == ExitCode.OK
    output = f"process {target.pid} replaced itself by another program (exec)"
    assert f"\nebpfprof: {output}; the profile has everything until then.\n" in finished.stderr
    profile = only_profile(tmp_path)
    assert f"ended early: {output}" in profile.comments
    assert sum(s.values[0] for s in profile.samples if s.locations[0].frames) >= 9


@pytest.mark.parametrize("end", ["ended", "replaced itself by another program (exec)"])
def test_a_target_that_ends_before_recording_is_reported(end: str, tmp_path: Path) -> None:
    ticker = program("ticker")
    with Target.start(ticker, str(ticker)) as target:
        arguments = ["--pid", str(target.pid)]
        stopping = command("stops before it attaches")
        recorder = Recorder(arguments, tmp_path, command=stopping)
        try:
            recorder.wait_until_stopped()
            if end == "ended":
                target.kill()
            else:
                target.ask("exec", "ready ")
            recorder.send(signal.SIGCONT)
            finished = recorder.finish()
        finally:
            recorder.close()
    assert finished.code == ExitCode.TARGET_GONE
    assert finished.stderr == (
        f"ebpfprof: Nothing was recorded: process {target.pid} {end} while the probes were set up."
        "\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_when_a_target_ends_the_other_is_still_recorded(tmp_path: Path) -> None:
    nopprof = program("nopprof")
    with (
        Target.start(nopprof) as one,
        Target.start(nopprof) as other,
        recording(one.pid, tmp_path, "--pid", str(other.pid)) as recorder,
    ):
        one.close_input()
        one.wait()
        other.ask("go", "done")
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == ExitCode.OK
    assert f"process {one.pid} ended" in finished.stderr
    assert f"process {other.pid} ended" not in finished.stderr
    assert names_in(tmp_path) == {f"nopprof-{pid}.block.pb.gz" for pid in (one.pid, other.pid)}


def test_with_a_bad_target_no_target_is_recorded(tmp_path: Path) -> None:
    with Target.start(program("nopprof")) as target:
        pids = f"{target.pid},{IMPOSSIBLE_PID}"
        output = refused(ExitCode.NO_SUCH_PROCESS, "--pid", pids, folder=tmp_path)
    assert f"no process {IMPOSSIBLE_PID}" in output
