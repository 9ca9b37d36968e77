"""The page of the real server: `ebpfprof serve` of a process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome

SERVE = (sys.executable, "-m", "ebpfprof", "serve", "--listen", "127.0.0.1:0", "--window", "1")
DEADLINE_S = 60


@contextmanager
def serving(chromium: Chrome, pid: int, folder: Path, *options: str) -> Iterator[str]:
    """Serve a process, in a folder, while the block runs; the address of the page.

    `options` are more ones of `serve`. What the command prints must be printable.
    """
    command = [*SERVE, "--pid", str(pid), *options]
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
