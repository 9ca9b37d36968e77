"""`ebpfprof run`: a program's profile from its first instruction, and how both end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import pytest

from tests.builds import builds, in_full
from tests.kernel.kernel_state import await_no_probes, children, has_probes
from tests.kernel.programs import program
from tests.kernel.run_command import (
    BLOCK,
    COMMAND,
    DEADLINE_S,
    WAITS_OF_INIT,
    WAITS_OF_MAIN,
    has_waits,
    run_brief,
    running,
)
from tests.kernel.tampered import command as tampered
from tests.recorder import Recorder, only_profile, run


@pytest.mark.parametrize(("minor", "mode"), builds(("1.19", "plain"), ("1.27", "pie")))
def test_waits_of_init_functions_are_in_the_profile(minor: str, mode: str, tmp_path: Path) -> None:
    path = program("brief", minor, mode)
    finished = run(*BLOCK, "--", str(path), folder=tmp_path, command=COMMAND)
    assert finished.code == 0, finished.stderr
    profile = only_profile(tmp_path)
    assert has_waits(profile, "main.receiveInInit", WAITS_OF_INIT)
    assert has_waits(profile, "main.receiveInMain", WAITS_OF_MAIN)


@pytest.mark.full
def test_the_end_of_the_program_is_not_an_early_end(tmp_path: Path) -> None:
    finished = run_brief(folder=tmp_path)
    assert finished.code == 0, finished.stderr
    assert "; the profile has everything until then" not in finished.stderr
    (end,) = [comment for comment in only_profile(tmp_path).comments if comment.endswith(" ended")]
    assert end.startswith("recorded until process ")


def test_before_the_end_of_the_duration_it_is_an_early_one(tmp_path: Path) -> None:
    finished = run_brief(folder=tmp_path, options=(*BLOCK, "--duration", "600"))
    assert finished.code == 0, finished.stderr
    assert "ended; the profile has everything until then" in finished.stderr
    assert any(comment.startswith("ended early: ") for comment in only_profile(tmp_path).comments)


def test_all_profiles_are_written_unless_some_are_chosen(tmp_path: Path) -> None:
    finished = run_brief(folder=tmp_path, options=("--profile", "default"))
    assert finished.code == 0, finished.stderr
    found = sorted(path.name.split(".", 1)[1] for path in tmp_path.iterdir())
    assert found == [f"{kind}.pb.gz" for kind in ("block", "cpu", "mutex")]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("exit", "3"), 3),
        (("signal", str(int(signal.SIGTERM))), 128 + signal.SIGTERM),
        *in_full(
            (("exit", "0"), 0),
            (("exit", "255"), 255),
            (("signal", str(int(signal.SIGKILL))), 128 + signal.SIGKILL),
        ),
    ],
)
def test_run_has_the_exit_status_of_the_program(
    arguments: tuple[str, ...], status: int, tmp_path: Path
) -> None:
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
def test_a_program_that_can_not_be_run_is_reported(
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


@pytest.mark.full
def test_the_program_has_the_standard_streams(tmp_path: Path) -> None:
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


def test_the_program_inherits_the_same_as_from_a_shell(tmp_path: Path) -> None:
    script = "grep -E 'Sig(Blk|Ign)|NoNewPrivs|Seccomp:' /proc/self/status; ulimit -a; pwd; env"
    words = ["sh", "-c", f"umask; ls /proc/self/fd; {script} | grep -v ^_="]
    env = dict(os.environ)  # what C libraries have put there is not in it
    direct = subprocess.run(
        words, capture_output=True, text=True, cwd=tmp_path, check=True, env=env
    )
    profiled = run("--profile", "cpu", "--", *words, folder=tmp_path, command=COMMAND)
    assert "SigIgn:\t0000000000000000" in direct.stdout
    assert profiled.stdout.decode() == direct.stdout


def test_after_the_duration_the_program_continues_without_probes(
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


def test_probes_are_attached_while_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(str(program("brief")), "wait") as target:
        (pid,) = children(target.pid)
        assert has_probes(pid)
        assert "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text()
        os.kill(target.pid, signal.SIGKILL)
        target.wait()
        await_no_probes(pid)
        os.kill(pid, signal.SIGUSR1)
        target.expect("got user defined")  # it continues by itself


@pytest.mark.parametrize(
    ("how", "number", "code"),
    [
        ("stops while attaching", signal.SIGKILL, -signal.SIGKILL),
        ("stops before it attaches", signal.SIGINT, 130),
        *in_full(
            ("stops before it attaches", signal.SIGKILL, -signal.SIGKILL),
            ("stops while attaching", signal.SIGTERM, 130),
        ),
    ],
)
def test_a_program_that_never_ran_is_killed_with_run(
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


@pytest.mark.parametrize("before", [["--"], *in_full([])])
def test_arguments_of_the_program_are_passed_on(before: list[str], tmp_path: Path) -> None:
    words = ["--help", "-h", "-o", "-", "--", "--profile", "none", "", "a b"]
    finished = run(
        "--profile", "cpu", *before, "/usr/bin/printf", "[%s]", *words,
        folder=tmp_path, command=COMMAND,
    )  # fmt: skip
    assert finished.code == 0, finished.stderr
    assert finished.stdout.decode() == "".join(f"[{word}]" for word in words)


def test_run_starts_the_program_as_another_user(tmp_path: Path) -> None:
    words = ("--profile", "cpu", "--user", "nobody", "--", "sh", "-c", "id -un; id -Gn; echo $HOME")
    finished = run(*words, folder=tmp_path, command=COMMAND)
    assert finished.stdout == b"nobody\nnogroup\n/nonexistent\n", finished.stderr
    (path,) = tmp_path.iterdir()
    assert path.stat().st_uid == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "PROGRAM"),
        (("--profile", "default", "-o", "x.svg", "--", "true"), "no format has this ending"),
        ((*BLOCK, "-o", "-", "--", "true"), "standard output belongs to the program"),
        (("--duration", "nan", "--", "true"), "--duration"),
        (("--user", "there-is-none", "--", "true"), "no user there-is-none"),
    ],
)
def test_bad_options_are_usage_errors(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    finished = run(*arguments, folder=tmp_path, command=COMMAND)
    assert finished.code == 2
    assert words in finished.stderr


def test_a_program_is_not_run_if_its_output_can_not_be_written(tmp_path: Path) -> None:
    finished = run_brief(
        "exec", "/bin/echo", "it ran", folder=tmp_path, options=(*BLOCK, "-o", "/no/x")
    )
    assert finished.code == 9
    assert "Cannot open the directory of /no/x" in finished.stderr
    assert finished.stdout == b""
