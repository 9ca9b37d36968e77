"""Start a target program, talk to it over its standard input and output, and end it for sure.

Every target prints `ready PID` when it can be attached to, waits for a line before it does what
it is for, and ends when its standard input closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import IO, Final, Self

# By how much deadlines are longer than usual, for machines that are slow: software emulation.
SLOWNESS: Final = float(os.environ.get("EBPFPROF_TEST_SLOWNESS", "1"))
DEADLINE_S: Final = 120.0 * SLOWNESS
_READY: Final = "ready "

# While the kernel puts small pages of a heap together (khugepaged), nobody can read them without
# waiting, and an event that happens then is lost and counted. Exact counts need that off, here and
# in all that is started from here.
_PR_SET_THP_DISABLE: Final = 41
_failed = ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
if _failed:
    raise OSError(ctypes.get_errno(), "transparent huge pages could not be switched off")


Command = Path | Sequence[str | Path]


class TargetError(Exception):
    """The target did not do what was expected; the message carries its output."""


class Target:
    """A running target. Use it as a context manager: no process outlives the block."""

    def __init__(self, process: subprocess.Popen[str], stderr: IO[bytes]) -> None:
        self._process = process
        self._stderr = stderr
        self._seen: list[str] = []
        self._killed = False
        # None marks the end of the output.
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def start(
        cls,
        binary: Command,
        *args: str,
        env: Mapping[str, str] | None = None,
        deadline_s: float = DEADLINE_S,
        ready: str | None = _READY,
    ) -> Self:
        """Start a program with `env` added to the environment and wait for its `ready` line.

        `binary` is its file, or the beginning of its command line.

        `ready=None` does not wait, for programs that are not ours. Raises TargetError.
        """
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the target)
        try:
            process = subprocess.Popen(
                [*map(str, (binary,) if isinstance(binary, Path) else binary), *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                bufsize=1,
                env={**os.environ, **(env or {})},
            )
        except OSError:
            stderr.close()
            raise
        target = cls(process, stderr)
        if ready is not None:
            try:
                target.expect(ready, deadline_s)
            except BaseException:  # Ctrl-C, too: no process may stay
                target.kill()
                raise
        return target

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ready_pid(self) -> int:
        """The process that its last `ready` line names: another one, if it started that."""
        line = next(line for line in reversed(self._seen) if line.startswith(_READY))
        return int(line.split()[1])

    @property
    def returncode(self) -> int | None:
        """Exit status, or None while it runs."""
        return self._process.poll()

    def say(self, line: str) -> None:
        """Write one line to the target's standard input. Raises TargetError if it has ended."""
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(f"{line}\n")
            stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._failure(f"could not be told {line!r}: its input is closed") from error

    def expect(self, prefix: str, deadline_s: float = DEADLINE_S) -> str:
        """The next line that begins with `prefix`; lines before it are kept in `output`.

        Raises TargetError if the target ends first or `deadline_s` seconds have passed.
        """
        until = monotonic() + deadline_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - monotonic()))
            except queue.Empty:
                raise self._failure(f"did not print {prefix!r} within {deadline_s} s") from None
            if line is None:
                self._lines.put(None)
                raise self._failure(f"ended without printing {prefix!r}")
            self._seen.append(line)
            if line.startswith(prefix):
                return line

    def ask(self, line: str, prefix: str, deadline_s: float = DEADLINE_S) -> str:
        """Say `line` and return the answer that begins with `prefix`."""
        self.say(line)
        return self.expect(prefix, deadline_s)

    @property
    def output(self) -> list[str]:
        """The lines of standard output that were read so far."""
        return list(self._seen)

    @property
    def errors(self) -> str:
        """What the target wrote to standard error so far."""
        if self._stderr.closed:
            return ""
        return os.pread(self._stderr.fileno(), 1 << 16, 0).decode(errors="replace")

    def close_input(self) -> None:
        """Close the target's standard input: it ends of its own accord."""
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended
            stdin.close()

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Exit status once it has ended. Raises TargetError if it has not by the deadline."""
        try:
            return self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise self._failure(f"did not end within {deadline_s} s") from None

    def close(self, deadline_s: float = DEADLINE_S) -> None:
        """End the target by closing its input. Raises TargetError if it fails or hangs."""
        try:
            self.close_input()
            status = self.wait(deadline_s)
            if status != 0:
                raise self._failure(f"ended with status {status}")
        finally:
            self.kill()

    def kill(self) -> None:
        """Make sure that the target is gone, and give back what it held. May be called twice."""
        self._killed = True
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self.close_input()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self._report())
            self.kill()
        elif not self._killed:
            self.close()

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        for line in stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _failure(self, what: str) -> TargetError:
        return TargetError(f"Target {self.pid} {what}.\n{self._report()}")

    def _report(self) -> str:
        printed = "\n".join(self._seen[-20:])
        command = self._process.args
        assert isinstance(command, list)
        return (
            f"command: {' '.join(map(str, command))}\nstatus: {self._process.poll()}\n"
            f"stdout:\n{printed}\nstderr:\n{self.errors}"
        )
