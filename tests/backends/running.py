"""A server of others that tests started, which ends with the block."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Self

from tests.targets_run import DEADLINE_S


class RunningServer:
    """A context manager. What it prints goes to the file `log`."""

    def __init__(self, command: Sequence[str | Path], port: int, log: Path) -> None:
        """Start it; it takes connections on loopback. Fails with its log if it ends before."""
        self.url = f"http://127.0.0.1:{port}"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=log.parent
            )
        try:
            self._await_listening(port, log)
        except BaseException:  # Ctrl-C, too: no process may stay
            self.kill()
            raise

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _await_listening(self, port: int, log: Path) -> None:
        until = monotonic() + DEADLINE_S
        while True:
            with socket.socket() as made:
                if made.connect_ex(("127.0.0.1", port)) == 0:
                    return
            assert not self.has_ended, log.read_text()
            assert monotonic() < until, log.read_text()
            sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
