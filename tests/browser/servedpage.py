"""The page of the real server: `ebpfprof serve` of processes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome

SERVE = (sys.executable, "-m", "ebpfprof", "serve", "--listen", "127.0.0.1:0", "--window", "1")
DEADLINE_S = 60


@contextmanager
def serving(chromium: Chrome, pids: Sequence[int], folder: Path, *options: str) -> Iterator[str]:
    """Serve processes, in a folder, while the block runs; the address of the page.

    `options` are more ones of `serve`. What the command prints must be printable.
    """
    command = [*SERVE, "--pid", ",".join(map(str, pids)), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as server:
        assert server.stderr is not None
        first = server.stderr.readline()
        address = re.search(r"http://[\d.:]+/", first)
        assert address, first
        try:
            yield address.group()
            chromium.get("about:blank")  # it sends no more requests
        finally:
            server.send_signal(signal.SIGTERM)
        _, rest = server.communicate(timeout=DEADLINE_S)
        assert all(line.isprintable() for line in (first + rest).split("\n"))
