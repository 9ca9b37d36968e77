"""Outputs that cannot be written, and errors of our own lose no profile."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from tests.builds import in_full
from tests.kernel.kernel_state import has_probes
from tests.kernel.mounts import mounted
from tests.kernel.programs import program
from tests.kernel.refusal import refused
from tests.kernel.tampered import command
from tests.recorder import (
    BLOCK_ONLY,
    COMMAND,
    Finished,
    names_in,
    only_profile,
    recording,
    run,
    timeless,
)
from tests.targets_run import Target


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target.start(program("ticker")) as running:
        yield running
        assert running.ask("wait", "done")
        assert not has_probes(running.pid)


def outputs_that_cannot_be(folder: Path) -> dict[str, tuple[Path, str]]:
    """Paths, and a word of the message about each."""
    (folder / "folder").mkdir()
    (folder / "file").write_text("keep me")
    (folder / "link").symlink_to("file")
    return {
        "missing folder": (folder / "none" / "x.pb.gz", "No such file or directory"),
        "a folder": (folder / "folder", "is a directory"),
        "a file": (folder / "file", "is there already"),
        "a link": (folder / "link", "symbolic link"),
        "an odd file system": (Path("/proc/self/x.pb.gz"), "Cannot write"),
        "escape sequences": (folder / "\x1b[31m" / "x.pb.gz", r"\x1b[31m"),
    }


@pytest.mark.parametrize(
    "kind",
    ["missing folder", "a folder", "a file", "a link", "an odd file system", "escape sequences"],
)
def test_an_impossible_output_is_refused_before_recording(
    kind: str, target: Target, tmp_path: Path
) -> None:
    path, words = outputs_that_cannot_be(tmp_path)[kind]
    output = refused(
        ExitCode.OUTPUT_ERROR, "--pid", str(target.pid), "-o", str(path), folder=tmp_path
    )
    assert words in output
    assert "with -o" in output
    assert (tmp_path / "file").read_text() == "keep me"


def test_a_file_that_appears_while_recording_is_not_replaced(
    target: Target, tmp_path: Path
) -> None:
    with recording(target.pid, tmp_path, "-o", "waits.html") as recorder:
        (tmp_path / "waits.html").write_text("keep me")
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == ExitCode.OUTPUT_ERROR
    assert (tmp_path / "waits.html").read_text() == "keep me"
    output = re.search(
        r"waits.html is there already: .* saved as (\S+\.html) instead", finished.stderr
    )
    assert output, finished.stderr
    assert Path(output[1]).read_bytes().startswith(b"<!DOCTYPE html>")


@pytest.mark.full
def test_a_read_only_folder_is_refused_before_recording(target: Target, tmp_path: Path) -> None:
    with mounted(tmp_path, "-o", "ro"):
        output = refused(ExitCode.OUTPUT_ERROR, "--pid", str(target.pid), folder=tmp_path)
    assert "Read-only file system" in output


def test_stdout_for_two_targets_is_a_usage_error(target: Target, tmp_path: Path) -> None:
    finished = run("--pid", f"{target.pid},1", "-o", "-", folder=tmp_path)
    assert finished.code == ExitCode.USAGE
    assert "standard output takes one profile, not 2" in finished.stderr


def test_an_unknown_ending_is_a_usage_error(target: Target, tmp_path: Path) -> None:
    finished = run("--pid", str(target.pid), "-o", "x.svg", folder=tmp_path)
    assert finished.code == ExitCode.USAGE
    assert "x.svg: no format has this ending" in finished.stderr
    assert ".html (html)" in finished.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format_name", ["pprof", *in_full("json")])
def test_a_full_disk_saves_the_profile_elsewhere(
    format_name: str, target: Target, tmp_path: Path
) -> None:
    full, rescue = tmp_path / "full", tmp_path / "rescue"
    for folder in (full, rescue):
        folder.mkdir()
    with mounted(full, "-o", "size=8k"):
        (full / "filler").write_bytes(bytes(8192))
        finished = run(
            *("--pid", str(target.pid), "--duration", "0.3", "-f", format_name),
            folder=full,
            env={"TMPDIR": str(rescue)},
        )
        assert os.listdir(full) == ["filler"]
    assert finished.code == ExitCode.OUTPUT_ERROR
    assert "No space left on device" in finished.stderr
    output = re.search(r"What was recorded was saved as (\S+) instead\.\n$", finished.stderr)
    assert output is not None, finished.stderr
    saved = Path(output[1])
    assert saved.parent.parent == rescue
    if format_name == "pprof":
        assert saved.name.endswith(".pb.gz")
        assert pprof.decode(saved.read_bytes()).samples
    else:
        assert saved.name.endswith(".json")
        assert json.loads(saved.read_bytes())["stacks"]
    assert b"Waits of process" in finished.stdout
    assert b"Written" not in finished.stdout


def test_a_failing_output_loses_no_other_profile(target: Target, tmp_path: Path) -> None:
    full, rescue = tmp_path / "full", tmp_path / "rescue"
    for folder in (full, rescue):
        folder.mkdir()
    with (
        Target.start(program("nopprof")) as other,
        mounted(full, "-o", "size=8k"),
    ):
        # One of two has room: the first.
        (full / "filler").write_bytes(bytes(4096))
        other.say("go")
        finished = run(
            *("--pid", f"{target.pid},{other.pid}", "--duration", "0.3"),
            folder=full,
            env={"TMPDIR": str(rescue)},
        )
        written = names_in(full)
        other.expect("done")
    assert finished.code == ExitCode.OUTPUT_ERROR
    assert written == {f"ticker-{target.pid}.block.pb.gz", "filler"}
    assert f"Written: ticker-{target.pid}.block.pb.gz" in timeless(finished.stdout.decode())
    (saved,) = rescue.rglob("*.pb.gz")
    assert f"nopprof-{other.pid}.block.pb.gz: No space left on device" in timeless(finished.stderr)
    assert f"({other.pid}" not in finished.stderr.splitlines()[-1]
    assert any(f"process {other.pid} " in c for c in pprof.decode(saved.read_bytes()).comments)


def shell(script: str, target: Target, folder: Path) -> Finished:
    """Run the command as $RUN in a shell script; the code is that of its last pipe's first."""
    words = " ".join([*COMMAND, *BLOCK_ONLY, "--pid", str(target.pid), "--duration", "0.3"])
    done = subprocess.run(
        ["/bin/bash", "-c", script.replace("$RUN", words)],
        cwd=folder,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    return Finished(done.returncode, done.stdout, done.stderr.decode())


@pytest.mark.full
def test_a_closed_pipe_is_not_an_error(target: Target, tmp_path: Path) -> None:
    finished = shell("$RUN | head -c 1; exit ${PIPESTATUS[0]}", target, tmp_path)
    assert finished.code == ExitCode.OK
    assert finished.stderr.count("\n") == 1
    assert only_profile(tmp_path).samples


def test_a_closed_pipe_for_all_output_loses_no_profile(target: Target, tmp_path: Path) -> None:
    finished = shell("$RUN 2>&1 | head -n 1; exit ${PIPESTATUS[0]}", target, tmp_path)
    assert finished.code == ExitCode.OK
    assert finished.stdout.startswith(b"recording ")
    assert only_profile(tmp_path).samples


@pytest.mark.parametrize(
    "closed",
    [*in_full(">&-", "2>&-"), "<&- >&- 2>&-"],
)
def test_closed_standard_files_lose_no_profile(closed: str, target: Target, tmp_path: Path) -> None:
    finished = shell(f"$RUN {closed}", target, tmp_path)
    assert finished.code == ExitCode.OK
    assert only_profile(tmp_path).samples


def test_a_full_stdout_is_reported(target: Target, tmp_path: Path) -> None:
    finished = shell("$RUN > /dev/full", target, tmp_path)
    assert finished.code == ExitCode.OUTPUT_ERROR
    assert "No space left on device" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert only_profile(tmp_path).samples


@pytest.mark.parametrize("to", ["> /dev/full", *in_full(">&-")])
def test_a_profile_that_stdout_rejects_is_saved(to: str, target: Target, tmp_path: Path) -> None:
    finished = shell(f"$RUN -o - {to}", target, tmp_path)
    assert finished.code == ExitCode.OUTPUT_ERROR
    (saved,) = tmp_path.iterdir()
    assert f"What was recorded was saved as {saved} instead." in finished.stderr
    assert only_profile(tmp_path).samples


def test_a_profile_is_not_written_to_a_terminal(target: Target, tmp_path: Path) -> None:
    main, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [*COMMAND, *BLOCK_ONLY, "--pid", str(target.pid), "-o", "-"],
            cwd=tmp_path,
            stdout=terminal,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(main)
        os.close(terminal)
    assert done.returncode == ExitCode.OUTPUT_ERROR
    assert "not for a terminal" in done.stderr
    assert "recording" not in done.stderr


@pytest.mark.full
def test_a_table_that_cannot_be_shown_loses_no_profile(target: Target, tmp_path: Path) -> None:
    finished = tampered("fails to show the table", target, tmp_path)
    assert only_profile(tmp_path).samples
    assert_is_told_as_a_bug(finished)


def test_a_failing_name_lookup_loses_no_profile(target: Target, tmp_path: Path) -> None:
    finished = tampered("fails to name frames", target, tmp_path)
    assert_is_told_as_a_bug(finished)
    profile = only_profile(tmp_path)
    assert sum(sample.values[0] for sample in profile.samples) > 50
    assert not any(location.frames for s in profile.samples for location in s.locations)
    assert b"Written: " in finished.stdout


def test_ebpfprof_debug_shows_tracebacks(target: Target, tmp_path: Path) -> None:
    debug = {"EBPFPROF_DEBUG": "1"}
    finished = tampered("fails to show the table", target, tmp_path, env=debug)
    assert finished.code == ExitCode.FAILURE
    assert "Traceback" in finished.stderr
    assert "tampered.py" in finished.stderr


def tampered(how: str, target: Target, folder: Path, env: dict[str, str] | None = None) -> Finished:
    arguments = ("--pid", str(target.pid), "--duration", "0.3")
    return run(*arguments, folder=folder, command=command(how), env=env)


def assert_is_told_as_a_bug(finished: Finished) -> None:
    assert finished.code == ExitCode.FAILURE
    recording, line = finished.stderr.splitlines()
    assert recording.startswith("recording ")
    assert line.startswith("ebpfprof: This is a bug: KeyError in tampered.py:")
    assert "EBPFPROF_DEBUG=1" in line


def test_ctrl_c_during_imports_is_quiet(tmp_path: Path) -> None:
    importing = (
        "import sys, signal, os\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'ebpfprof.commands.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from ebpfprof.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", importing], cwd=tmp_path, capture_output=True, timeout=60
    )
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == b""
