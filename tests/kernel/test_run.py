"""`ebpfprof run`: a program's profile from its first instruction, and how both end."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from unittest.mock import patch

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.kernel.kernel_state import await_no_probes, children, has_probes
from tests.kernel.programs import program
from tests.kernel.tampered import command as tampered
from tests.recorder import Finished, Recorder, only_profile, run
from tests.targets_run import Target

COMMAND = (sys.executable, "-m", "ebpfprof", "run")
BLOCK = ("--profile", "block")
WAITS_OF_INIT = 20
WAITS_OF_MAIN = 30
DEADLINE_S = 60


def run_brief(*arguments: str, folder: Path, options: tuple[str, ...] = BLOCK) -> Finished:
    return run(*options, "--", str(program("brief")), *arguments, folder=folder, command=COMMAND)


def waits(profile: Profile) -> dict[str, int]:
    """How many waits below each function of package main."""
    found: dict[str, int] = {}
    for sample in profile.samples:
        frames = [frame.function for location in sample.locations for frame in location.frames]
        for function in dict.fromkeys(frames):
            found[function] = found.get(function, 0) + sample.values[0]
    return found


def has_waits(profile: Profile, function: str, times: int) -> bool:
    """Whether a function of brief waited as often as it does, or its senders in its place.

    They do where the receiver is preempted just before it waits.
    """
    found = waits(profile)
    return times - found.get("main.receive.func1", 0) <= found[function] <= times


@contextmanager
def running(
    *arguments: str, options: tuple[str, ...] = BLOCK, ready: str | None = "ready "
) -> Iterator[Target]:
    """The command as a target whose input and output are those of the program it runs."""
    with (
        patch.dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2])),
        Target.start(
            Path(sys.executable), *COMMAND[1:], *options, "--", *arguments, ready=ready
        ) as target,
    ):
        yield target
        target.kill()


@pytest.mark.parametrize(("minor", "mode"), [("1.19", "plain"), ("1.27", "plain"), ("1.27", "pie")])
def test_what_waits_in_the_first_lines_is_in_the_profile(
    minor: str, mode: str, tmp_path: Path
) -> None:
    path = program("brief", minor, mode)
    finished = run(*BLOCK, "--", str(path), folder=tmp_path, command=COMMAND)
    assert finished.code == 0, finished.stderr
    profile = only_profile(tmp_path)
    assert has_waits(profile, "main.receiveInInit", WAITS_OF_INIT)
    assert has_waits(profile, "main.receiveInMain", WAITS_OF_MAIN)


def test_all_profiles_are_written_unless_some_are_chosen(tmp_path: Path) -> None:
    finished = run_brief(folder=tmp_path, options=("--profile", "default"))
    assert finished.code == 0, finished.stderr
    found = sorted(path.name.split(".", 1)[1] for path in tmp_path.iterdir())
    assert found == [f"{kind}.pb.gz" for kind in ("block", "cpu", "mutex")]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("exit", "0"), 0),
        (("exit", "3"), 3),
        (("exit", "255"), 255),
        (("signal", str(int(signal.SIGTERM))), 128 + signal.SIGTERM),
        (("signal", str(int(signal.SIGKILL))), 128 + signal.SIGKILL),
    ],
)
def test_its_exit_status_is_ours(arguments: tuple[str, ...], status: int, tmp_path: Path) -> None:
    finished = run_brief(*arguments, folder=tmp_path)
    assert finished.code == status, finished.stderr
    assert has_waits(only_profile(tmp_path), "main.receiveInMain", WAITS_OF_MAIN)


@pytest.mark.parametrize(
    ("name", "content", "code", "words"),
    [
        ("there-is-none", None, 127, "There is no program there-is-none"),
        ("./none", None, 127, "There is no program ./none"),
        (".", None, 126, "it is a directory"),
        ("./text", "no program", 126, "may not be executed"),
        ("./script", "echo", 126, "nor a script"),
        ("./astray", "#!/there/is/none", 126, "first line"),
        ("", None, 127, "There is no program"),
    ],
)
def test_what_cannot_be_run_is_said(
    name: str, content: str | None, code: int, words: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o644 if name == "./text" else 0o755)
    finished = run("--", name, folder=tmp_path, command=COMMAND)
    assert finished.code == code
    assert finished.stderr.startswith("ebpfprof: ")
    assert words in finished.stderr
    assert not list(tmp_path.glob("*.gz"))


def test_input_and_output_are_the_programs(tmp_path: Path) -> None:
    text = os.urandom(1 << 18)
    finished = subprocess.run(
        [*COMMAND, *BLOCK, "--", program("brief"), "copy"],
        input=text,
        capture_output=True,
        cwd=tmp_path,
        timeout=DEADLINE_S,
        check=True,
    )
    assert finished.stdout == text
    assert b"Waits of process" in finished.stderr
    assert b"main.receive" in finished.stderr


def test_what_it_inherits_is_what_a_shell_gives(tmp_path: Path) -> None:
    script = "grep -E 'Sig(Blk|Ign)|NoNewPrivs|Seccomp:' /proc/self/status; ulimit -a; pwd; env"
    words = ["sh", "-c", f"umask; ls /proc/self/fd; {script} | grep -v ^_="]
    env = dict(os.environ)  # what C libraries have put there is not in it
    direct = subprocess.run(
        words, capture_output=True, text=True, cwd=tmp_path, check=True, env=env
    )
    profiled = run("--profile", "cpu", "--", *words, folder=tmp_path, command=COMMAND)
    assert "SigIgn:\t0000000000000000" in direct.stdout
    assert profiled.stdout.decode() == direct.stdout


def test_signals_that_were_ignored_still_are(tmp_path: Path) -> None:
    finished = run(
        "--profile", "cpu", "--", "grep", "SigIgn", "/proc/self/status",
        folder=tmp_path, command=("/usr/bin/nohup", *COMMAND),
    )  # fmt: skip
    mask = int(finished.stdout.split()[1], 16)
    assert mask == 1 << signal.SIGHUP - 1


def test_a_signal_is_passed_on_and_the_profile_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(str(program("brief")), "wait") as target:
        for number, name in ((signal.SIGUSR1, "user defined signal 1"), (signal.SIGHUP, "hangup")):
            os.kill(target.pid, number)
            target.expect(f"got {name}")
        os.kill(target.pid, signal.SIGINT)  # there is no terminal that would have sent it to both
        target.expect("got interrupt")
        os.kill(target.pid, signal.SIGTERM)
        target.expect("got terminated")
        assert target.wait() == 7
    assert has_waits(only_profile(tmp_path), "main.receiveInMain", WAITS_OF_MAIN)


def test_ctrl_c_reaches_the_program_once_and_we_outlive_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*COMMAND, *BLOCK, "--", str(program("brief")), "wait"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(words[0], words)
    said = read_until(terminal, "ready ")
    os.write(terminal, b"\x03")
    said += read_until(terminal, "got interrupt")
    os.write(terminal, b"\x03")
    said += read_until(terminal, "got interrupt")
    os.kill(pid, signal.SIGTERM)
    said += read_until(terminal, "Next: .*\n")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)  # not before: that hangs up
    assert os.waitstatus_to_exitcode(status) == 7
    assert said.count("got interrupt") == 2
    assert only_profile(tmp_path).samples


def test_ctrl_z_stops_both_and_fg_lets_them_go_on(tmp_path: Path) -> None:
    words = shlex.join([*COMMAND, *BLOCK, "--", str(program("sleeper"))])
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ.update(PYTHONPATH=str(Path(__file__).parents[2]), PS1="")
        os.execv("/bin/bash", ["bash", "--norc", "--noediting", "-i"])
    try:
        os.write(terminal, f"stty -echo; {words}\n".encode())
        child = int(re.findall(r"ready (\d+)", read_until(terminal, r"ready \d+\r"))[0])
        os.write(terminal, b"\x1a")
        read_until(terminal, r"Stopped .*\n")
        until_status(child, r"State:\tT")
        os.write(terminal, b"fg\n")
        read_until(terminal, r"-m ebpfprof run .*\n")
        until_status(child, r"State:\t[^T]")
        os.write(terminal, b"\x03")
        read_until(terminal, r"Next: .*\n")
        os.write(terminal, b'echo "status=$?"; exit 0\n')
        read_until(terminal, f"status={128 + signal.SIGINT}\r")
    finally:
        os.kill(pid, signal.SIGHUP)  # it ends what it started, too
        os.close(terminal)
        os.waitpid(pid, 0)
    assert only_profile(tmp_path)


def until_status(pid: int, pattern: str) -> None:
    """Wait until the expression is found in the status of a process; fails after DEADLINE_S."""
    until = monotonic() + DEADLINE_S
    while not re.search(pattern, status := Path(f"/proc/{pid}/status").read_text()):
        assert monotonic() < until, status
        sleep(0.01)


def test_its_terminal_is_ours(tmp_path: Path) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && tty"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
        words = [*COMMAND, "--profile", "cpu", "--", "sh", "-c", script]
        os.execv(words[0], words)
    read_until(terminal, r"/dev/pts/\d+\r\n")
    read_until(terminal, r"Next: .*\n")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_its_end_aborts_the_writing(number: signal.Signals, tmp_path: Path) -> None:
    words = (*BLOCK, "--", str(program("brief")), "exit", "3")
    recorder = Recorder(words, tmp_path, command=tampered("stops while writing", "run"))
    try:
        recorder.wait_until_stopped()
        recorder.send(number)
        recorder.send(signal.SIGCONT)
        finished = recorder.finish()
    finally:
        recorder.close()
    assert finished.code == 130
    assert "Aborted. Written: nothing." in finished.stderr
    assert os.listdir(tmp_path) == []


def read_until(fd: int, pattern: str) -> str:
    """Read from a terminal until the expression is found in what was read."""
    text = ""
    while not re.search(pattern, text):
        assert select.select([fd], [], [], DEADLINE_S)[0], text
        text += os.read(fd, 4096).decode()
    return text


def test_with_a_duration_the_program_goes_on_without_probes_and_tracer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(str(program("brief")), "wait", options=(*BLOCK, "-d", "0.2")) as target:
        (pid,) = children(target.pid)
        assert "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text()
        while not list(tmp_path.iterdir()):
            assert target.returncode is None
        assert not has_probes(pid)
        target.close_input()
        assert target.wait() == 0
    profile = only_profile(tmp_path)
    assert has_waits(profile, "main.receiveInInit", WAITS_OF_INIT)
    assert profile.duration_ns < 60e9


def test_while_it_runs_there_are_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with running(str(program("brief")), "wait") as target:
        (pid,) = children(target.pid)
        assert has_probes(pid)
        assert "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text()
        os.kill(target.pid, signal.SIGKILL)
        target.wait()
        await_no_probes(pid)
        os.kill(pid, signal.SIGUSR1)
        target.expect("got user defined")  # it goes on by itself


@pytest.mark.parametrize(
    ("how", "number", "code"),
    [
        ("stops before it attaches", signal.SIGKILL, -signal.SIGKILL),
        ("stops while attaching", signal.SIGKILL, -signal.SIGKILL),
        ("stops before it attaches", signal.SIGINT, 130),
        ("stops while attaching", signal.SIGTERM, 130),
    ],
)
def test_a_program_that_never_ran_does_not_stay(
    how: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    touched = tmp_path / "it-ran"
    words = (*BLOCK, "--", str(program("brief")), "exec", "/bin/touch", str(touched))
    recorder = Recorder(words, tmp_path, command=(*tampered(how)[:-1], "run"))
    try:
        recorder.wait_until_stopped()
        (child,) = children(recorder.pid)
        pidfd = os.pidfd_open(child)
        assert "t (tracing stop)" in Path(f"/proc/{child}/status").read_text()
        recorder.send(number)
        if number != signal.SIGKILL:
            recorder.send(signal.SIGCONT)
        assert recorder.finish().code == code
        assert select.select([pidfd], [], [], DEADLINE_S)[0], "it is still there"
        os.close(pidfd)
    finally:
        recorder.close()
    assert os.listdir(tmp_path) == []


def test_a_program_is_followed_to_the_go_program(tmp_path: Path) -> None:
    path = program("brief")
    words = ("env", "A=1", "sh", "-c", f"exec {shlex.quote(str(path))} exit 4")
    for options in (BLOCK, ("--profile", "default")):
        finished = run(*options, "--", *words, folder=tmp_path, command=COMMAND)
        assert finished.code == 4, finished.stderr
        assert "(env) replaced itself by " in finished.stderr
        assert "replaced itself by brief, which is profiled instead" in finished.stderr
        (written,) = tmp_path.glob("brief-*.block.pb.gz")
        assert has_waits(pprof.decode(written.read_bytes()), "main.receiveInInit", WAITS_OF_INIT)
        assert not [path for path in tmp_path.iterdir() if not path.name.startswith("brief-")]
        for each in tmp_path.iterdir():
            each.unlink()


def test_a_program_that_replaces_itself_unnoticed_is_followed(tmp_path: Path) -> None:
    """It is stopped then, before it was seen that what was recorded has ended."""
    words = ("sh", "-c", f"exec {shlex.quote(str(program('brief')))} exit 4")
    command = tampered("notices no replacement", "run")
    finished = run("--profile", "default", "--", *words, folder=tmp_path, command=command)
    assert finished.code == 4, finished.stderr
    assert "replaced itself by brief, which is profiled instead" in finished.stderr
    (written,) = tmp_path.glob("brief-*.block.pb.gz")
    assert has_waits(pprof.decode(written.read_bytes()), "main.receiveInInit", WAITS_OF_INIT)


def test_a_program_that_replaces_itself_as_it_is_left_alone_goes_on(tmp_path: Path) -> None:
    words = ("--profile", "default", "--duration", "0.2", "--", *once_left())
    finished = run(*words, folder=tmp_path, command=tampered("leaves late", "run"))
    assert finished.code == 4, finished.stderr
    assert "which is profiled instead" not in finished.stderr
    (written,) = tmp_path.glob("*.pb.gz")
    assert not written.name.startswith("brief-")


def test_a_program_that_replaces_itself_when_the_recording_has_failed_goes_on(
    tmp_path: Path,
) -> None:
    command = tampered("fails while recording", "run")
    finished = run("--profile", "default", "--", *once_left(), folder=tmp_path, command=command)
    assert finished.code == 13, finished.stderr
    assert "made up" in finished.stderr
    assert "The program ended with status 4." in finished.stderr


def once_left() -> tuple[str, ...]:
    """A program that replaces itself by brief as soon as there is a file `left`."""
    wait = "until [ -e left ]; do :; done"
    return "sh", "-c", f"{wait}; exec {shlex.quote(str(program('brief')))} exit 4"


def test_a_script_is_followed_to_the_go_program(tmp_path: Path) -> None:
    script = tmp_path / "start"
    script.write_text(f'#!/bin/sh\nexec {program("brief")} "$@"\n')
    script.chmod(0o755)
    finished = run(*BLOCK, "--", "./start", "exit", "4", folder=tmp_path, command=COMMAND)
    assert finished.code == 4, finished.stderr
    assert has_waits(only_profile(tmp_path), "main.receiveInInit", WAITS_OF_INIT)


@pytest.mark.parametrize("before", [["--"], []])
def test_its_arguments_are_its_own(before: list[str], tmp_path: Path) -> None:
    words = ["--help", "-h", "-o", "-", "--", "--profile", "none", "", "a b"]
    finished = run(
        "--profile", "cpu", *before, "/usr/bin/printf", "[%s]", *words,
        folder=tmp_path, command=COMMAND,
    )  # fmt: skip
    assert finished.code == 0, finished.stderr
    assert finished.stdout.decode() == "".join(f"[{word}]" for word in words)


def test_a_go_program_that_becomes_another_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(str(program("brief")), "exec", str(program("sleeper"))) as target:
        (pid,) = children(target.pid)
        while f"`ebpfprof attach --pid {pid}` does that" not in target.errors:
            assert target.returncode is None
        target.close_input()
        assert target.wait() == 0
        assert "replaced itself by another program (exec)" in target.errors
    assert has_waits(only_profile(tmp_path), "main.receiveInInit", WAITS_OF_INIT)


def test_what_is_no_go_program_has_a_cpu_profile(tmp_path: Path) -> None:
    words = ("awk", "BEGIN { while (i < 3e7) i++; exit 6 }")
    finished = run("--profile", "default", "--", *words, folder=tmp_path, command=COMMAND)
    assert finished.code == 6
    assert "is no Go program: only its CPU profile is recorded" in finished.stderr
    assert only_profile(tmp_path).samples


def test_what_is_no_go_program_has_no_block_profile(tmp_path: Path) -> None:
    finished = run(*BLOCK, "--", "sh", "-c", "echo said; exit 6", folder=tmp_path, command=COMMAND)
    assert finished.code == 5
    assert finished.stdout == b"said\n"
    assert "The program ended with status 6." in finished.stderr
    assert "is no Go program, and did not replace itself by one" in finished.stderr


def test_a_followed_program_can_be_stopped_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running("cat", ready=None) as target:
        assert target.ask("one", "one") == "one"
        (pid,) = children(target.pid)
        os.kill(pid, signal.SIGSTOP)
        while "\nState:\tT" not in (status := Path(f"/proc/{pid}/status").read_text()) and (
            "\nState:\tt" not in status
        ):
            assert target.returncode is None
        os.kill(pid, signal.SIGCONT)
        assert target.ask("two", "two") == "two"
        os.kill(target.pid, signal.SIGTERM)
        assert target.wait() == 5  # it was not killed by it, but is no Go program
        assert f"ended with status {128 + signal.SIGTERM}" in target.errors


def test_it_can_run_as_another_user(tmp_path: Path) -> None:
    words = ("--profile", "cpu", "--user", "nobody", "--", "sh", "-c", "id -un; id -Gn; echo $HOME")
    finished = run(*words, folder=tmp_path, command=COMMAND)
    assert finished.stdout == b"nobody\nnogroup\n/nonexistent\n", finished.stderr
    (path,) = tmp_path.iterdir()
    assert path.stat().st_uid == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "PROGRAM"),
        (("--profile", "default", "-o", "x", "--", "true"), "-o names one file"),
        ((*BLOCK, "-o", "-", "--", "true"), "standard output is the program's own"),
        (("--duration", "nan", "--", "true"), "--duration"),
        (("--user", "there-is-none", "--", "true"), "no user there-is-none"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    finished = run(*arguments, folder=tmp_path, command=COMMAND)
    assert finished.code == 2
    assert words in finished.stderr


def test_a_program_is_not_begun_if_its_profile_could_not_be_written(tmp_path: Path) -> None:
    finished = run_brief(
        "exec", "/bin/echo", "it ran", folder=tmp_path, options=(*BLOCK, "-o", "/no/x")
    )
    assert finished.code == 9
    assert "was ended before its first instruction" in finished.stderr
    assert finished.stdout == b""
