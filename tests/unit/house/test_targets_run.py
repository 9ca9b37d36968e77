"""The runner of targets: hand-shakes, deadlines, and no process left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.targets_run import Target, TargetError

# Echoes its lines; "fail" makes it end badly, "deaf" makes it ignore the end of its input.
ECHO = """#!/bin/sh
echo "before"
echo "ready $$"
echo "to stderr" >&2
while read -r line; do
    case $line in
    fail) exit 3 ;;
    deaf) exec sleep 1000 ;;
    *) echo "echo $line $NAME $1" ;;
    esac
done
"""


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    script = tmp_path / "echo.sh"
    script.write_text(ECHO)
    script.chmod(0o755)
    return script


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_target_answers_and_ends_with_its_input(echo: Path) -> None:
    with Target.start(echo, "argument", env={"NAME": "value"}) as target:
        assert is_running(target.pid)
        assert target.ask("one", "echo one") == "echo one value argument"
        target.say("two")
        target.say("three")
        assert target.expect("echo three") == "echo three value argument"
        assert target.output[0] == "before"
        assert target.output[-2:] == ["echo two value argument", "echo three value argument"]
        status = target.returncode
    assert status is None
    assert target.returncode == 0
    assert not is_running(target.pid)


def test_a_program_without_ready_line_is_not_waited_for(tmp_path: Path) -> None:
    with Target.start(Path("/bin/cat"), ready=None) as target:
        assert target.ask("mirror", "mirror") == "mirror"


def test_a_silent_target_misses_its_deadline(echo: Path) -> None:
    with Target.start(echo) as target:
        with pytest.raises(TargetError, match=r"did not print 'never' within 0\.05 s") as caught:
            target.expect("never", deadline_s=0.05)
        assert "to stderr" in str(caught.value)
        assert f"ready {target.pid}" in str(caught.value)


def test_a_start_without_ready_line_leaves_no_process(tmp_path: Path) -> None:
    script = tmp_path / "mute.sh"
    script.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\necho broken >&2\nexec sleep 1000\n")
    script.chmod(0o755)
    with pytest.raises(TargetError, match="did not print 'ready '"):
        Target.start(script, deadline_s=2.0)
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_an_exit_instead_of_an_answer_is_reported_at_once(echo: Path) -> None:
    target = Target.start(echo)
    with pytest.raises(TargetError, match=r"ended without printing 'echo'(?s:.)*to stderr"):
        target.ask("fail", "echo")
    with pytest.raises(TargetError, match="ended without printing"):
        target.expect("echo")
    with pytest.raises(TargetError, match="ended with status 3"):
        target.close()


def test_a_nonzero_exit_inside_the_block_is_a_failure(echo: Path) -> None:
    def fail() -> None:
        with Target.start(echo) as target:
            target.say("fail")
            assert target.wait() == 3

    with pytest.raises(TargetError, match="ended with status 3"):
        fail()


def test_a_target_that_the_test_killed_is_not_a_failure(echo: Path) -> None:
    with Target.start(echo) as target:
        target.kill()
        assert target.returncode == -signal.SIGKILL
        with pytest.raises(TargetError, match="could not be told 'more'"):
            target.say("more")


def test_a_target_that_does_not_end_is_killed(echo: Path) -> None:
    target = Target.start(echo)
    target.say("deaf")
    with pytest.raises(TargetError, match=r"did not end within 0\.2 s"):
        target.close(deadline_s=0.2)
    assert not is_running(target.pid)


def test_a_failing_test_kills_its_target_and_shows_its_output(echo: Path) -> None:
    pids = []

    def fail() -> None:
        with Target.start(echo) as target:
            pids.append(target.pid)
            target.ask("hello", "echo")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fail()
    assert not is_running(pids[0])
    assert "echo hello" in caught.value.__notes__[0]
    assert "to stderr" in caught.value.__notes__[0]


def test_targets_leave_no_file_open(echo: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with Target.start(echo) as target:
        target.ask("hello", "echo")
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_missing_program_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Target.start(tmp_path / "missing")
