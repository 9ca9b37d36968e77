"""Run `ebpfprof attach` as a user would, wait until it records, end it, read what it wrote."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile
from tests.profilerules import violations
from tests.targets_run import SLOWNESS

DEADLINE_S = 60 * SLOWNESS
GZIP = b"\x1f\x8b"
COMMAND = (sys.executable, "-m", "ebpfprof", "attach")
# What tests ask for that don't say: one file, and the earlier.
BLOCK_ONLY = ("--profile", "block")
# Counts are exact then, under any load of the machine.
EVERY_WAIT = ("--max-overhead", "0")
_TIME = re.compile(r"-20\d{6}-\d{6}(?=\.)")


@dataclass(frozen=True)
class Finished:
    """What is left of a run of the command."""

    code: int
    stdout: bytes
    stderr: str


class Recorder:
    """A running `ebpfprof attach`, of the block profile unless the arguments say otherwise.

    `--profile default` among them stands for what the command does without that option.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        *,
        command: Sequence[str] = COMMAND,
        env: Mapping[str, str] | None = None,
    ) -> None:
        if "--profile" not in arguments:
            arguments = (*BLOCK_ONLY, *arguments)
        elif "default" in arguments:
            place = list(arguments).index("default")
            arguments = (*arguments[: place - 1], *arguments[place + 1 :])
        if "--max-overhead" not in arguments:
            arguments = (*EVERY_WAIT, *arguments)
        self._folder = folder
        self._stdout = tempfile.TemporaryFile()  # noqa: SIM115 (closed in finish)
        self._process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._stdout,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, **(env or {})},
        )
        self._said: list[str] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_recording(self) -> str:
        """Return the line that says so; fails if the command ends before."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
            if line.startswith("recording"):
                return line
        status = self._process.wait(timeout=DEADLINE_S)
        raise AssertionError(
            f"the command ended without recording, status {status}:\n" + "".join(self._said)
        )

    def wait_until_stopped(self) -> None:
        """Wait until a SIGSTOP has stopped it; fails if it ends before."""
        state = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert state is not None
        assert state.si_code == os.CLD_STOPPED, self.finish().stderr

    def interrupt(self) -> None:
        self.send(signal.SIGINT)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()

    def finish(self) -> Finished:
        """Wait for the end of the command; fails if it wrote a profile that a reader refuses."""
        _, rest = self._process.communicate(timeout=DEADLINE_S)
        with self._stdout as stdout:
            stdout.seek(0)
            written = stdout.read()
        for path in self._folder.glob("*.pb.gz"):
            check_profile(path.read_bytes(), path.name)
        if written.startswith(GZIP):
            check_profile(written, "on stdout")
        return Finished(self._process.returncode, written, "".join(self._said) + rest)

    def close(self) -> None:
        """Make sure that the command has ended. May be called twice."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._stdout.close()


@contextmanager
def recording(
    pid: int, folder: Path, *arguments: str, command: Sequence[str] = COMMAND
) -> Iterator[Recorder]:
    """Record process `pid` into `folder` while the block runs; the caller ends it."""
    arguments = ("--pid", str(pid), "--duration", "600", *arguments)
    recorder = Recorder(arguments, folder, command=command)
    try:
        recorder.wait_until_recording()
        yield recorder
    finally:
        recorder.close()


def end(recorder: Recorder) -> str:
    """End a recording as Ctrl-C does; it must succeed. What it printed on stderr."""
    recorder.interrupt()
    finished = recorder.finish()
    assert finished.code == 0, finished.stderr
    return finished.stderr


def run(
    *arguments: str,
    folder: Path,
    command: Sequence[str] = COMMAND,
    env: Mapping[str, str] | None = None,
) -> Finished:
    """Run the command to its end."""
    recorder = Recorder(arguments, folder, command=command, env=env)
    try:
        return recorder.finish()
    finally:
        recorder.close()


def timeless(text: str) -> str:
    """A file's name, or a text with names of files, without the date and time in the names."""
    return _TIME.sub("", text)


def names_in(folder: Path) -> set[str]:
    """The names of the files in a folder, without date and time."""
    found = [timeless(path.name) for path in folder.iterdir()]
    assert len(set(found)) == len(found), found
    return set(found)


def check_profile(data: bytes, where: str) -> None:
    """Fail if `go tool pprof`, Pyroscope, Parca or Alloy would refuse or change the profile."""
    faults = violations(data, now_s=time.time())
    assert not faults, f"the profile {where}: " + "\n".join(faults[:20])


def only_profile(folder: Path) -> Profile:
    """Read the one profile that was written into `folder`."""
    (path,) = folder.glob("*.pb.gz")
    data = path.read_bytes()
    check_profile(data, path.name)
    return pprof.decode(data)


def event_count(profile: Profile) -> int:
    """How many events a profile has, in all its samples."""
    return sum(sample.values[0] for sample in profile.samples)
