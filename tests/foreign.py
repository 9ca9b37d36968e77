"""What others made and tests need: a Go program without pprof in it, speedscope's schema, axe.

The program is Debian's fzf. In bookworm it is 0.38, built with Go 1.19, cgo and external linking,
and stripped. It finds lines that match what one types. Here it runs on a terminal of its own,
without the network; its lines come through a pipe, what it shows says how far it is.

    with Fzf() as fzf:                                   # it has its lines and is idle: attach
        oracle.set_block_rate(fzf.pid, fzf.program, 1)
        fzf.search(rounds=20)                            # about 1,500 events
        fzf.await_idle()
        buckets = oracle.read_block_buckets(fzf.pid, fzf.program)

    python -m tests.foreign    # downloads all, unless they are in the cache
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import termios
import threading
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.toolchains import ToolchainError, cache_dir, locked, run

PROGRAMS: Final = {"fzf": Path("usr/bin/fzf")}
SPEEDSCOPE: Final = "https://registry.npmjs.org/speedscope/-/speedscope-1.25.0.tgz"
_SPEEDSCOPE_SHA256: Final = "2831f1e0d26df914b477e522d78b8485511495a6af81a0b88158f8b48f9e0d03"
_SCHEMA: Final = "package/dist/release/file-format-schema.json"
AXE: Final = "https://registry.npmjs.org/axe-core/-/axe-core-4.14.1.tgz"
_AXE_SHA256: Final = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
_AXE_SCRIPT: Final = "package/axe.min.js"
_MAX_BYTES: Final = 16 << 20
DEADLINE_S: Final = 60.0
_LINES: Final = 50_000
# Makes the terminal on standard error the controlling one, which fzf opens as /dev/tty.
_START: Final = (
    "import fcntl, os, sys, termios\n"
    "fcntl.ioctl(2, termios.TIOCSCTTY, 0)\n"
    "os.execv(sys.argv[1], sys.argv[1:])\n"
)


def fetch(name: str) -> Path:
    """The program, from the Debian package of its name, unpacked in the cache, not installed.

    Raises ToolchainError if apt cannot get it, KeyError if it is not one of PROGRAMS.
    """
    folder = cache_dir() / "foreign" / name
    program = folder / PROGRAMS[name]
    with locked(folder.with_suffix(".lock")):
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as scratch:
                here = Path(scratch)
                options = ("-q", "-o", "APT::Sandbox::User=root")
                run(["apt-get", *options, "download", name], cwd=here, env=dict(os.environ))
                (package,) = here.glob("*.deb")
                unpacked = here / "unpacked"
                run(["dpkg-deb", "-x", package, unpacked], cwd=here, env=dict(os.environ))
                if not (unpacked / PROGRAMS[name]).exists():
                    raise ToolchainError(f"Debian's package {name} has no {PROGRAMS[name]}.")
                shutil.rmtree(folder, ignore_errors=True)
                unpacked.rename(folder)
    return program


def speedscope_schema() -> dict[str, Any]:
    """The JSON schema of speedscope's file format, out of its release on npm.

    Raises ToolchainError if it can't be downloaded or is not the one that is known.
    """
    found: dict[str, Any] = json.loads(_published(SPEEDSCOPE, _SPEEDSCOPE_SHA256, _SCHEMA))
    return found


def axe_script() -> str:
    """axe-core, a script that finds what makes a page hard to use for some people.

    Raises ToolchainError as speedscope_schema() does.
    """
    return _published(AXE, _AXE_SHA256, _AXE_SCRIPT).decode()


def _published(address: str, sha256: str, name: str) -> bytes:
    """A file of a package on npm."""
    archive = cache_dir() / "foreign" / Path(address).name
    with locked(archive.with_suffix(".lock")):
        data = archive.read_bytes() if archive.exists() else _download(address)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ToolchainError(f"{address} is not the file that the tests know.")
        if not archive.exists():
            fresh = archive.with_suffix(".new")
            fresh.write_bytes(data)
            fresh.rename(archive)
    with tarfile.open(fileobj=io.BytesIO(data)) as members:
        member = members.extractfile(name)
        assert member is not None
        return member.read()


def _download(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=DEADLINE_S) as answer:
            data: bytes = answer.read(_MAX_BYTES)
    except OSError as error:
        raise ToolchainError(f"{address} cannot be downloaded: {error}.") from error
    return data


class Fzf:
    """A running fzf that has read its lines; it ends with the block."""

    def __init__(self) -> None:
        self.program = fetch("fzf")
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        env = {name: value for name, value in os.environ.items() if not name.startswith("FZF_")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, str(self.program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            start_new_session=True,
            env=env | {"TERM": "xterm"},
        )
        os.close(theirs)
        self._shown = bytearray()
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            assert self._process.stdin is not None
            with self._process.stdin as stdin:
                stdin.write(b"".join(b"%d line\n" % number for number in range(_LINES)))
            self._await_count(_LINES)
            self.await_idle()
        except BaseException:  # Ctrl-C, too: no process may stay
            self._end()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def search(self, rounds: int) -> None:
        """Type 77 and erase it again, and wait for the number of matches after every key."""
        numbers = [str(number) for number in range(_LINES)]
        one = sum("7" in number for number in numbers)
        two = sum(number.count("7") > 1 for number in numbers)
        for _ in range(rounds):
            for key, matches in ((b"7", one), (b"7", two), (b"\x7f", one), (b"\x7f", _LINES)):
                os.write(self._terminal, key)
                self._await_count(matches)

    def await_idle(self) -> None:
        """Wait until it has shown nothing new for a while: its goroutines wait for a key.

        Its threads are no measure, one of its goroutines sleeps and wakes for ever (which is no
        block event). Raises ToolchainError if it does not come to rest.
        """
        until = time.monotonic() + DEADLINE_S
        with self._news:
            while self._news.wait(0.5):
                if time.monotonic() > until:
                    raise ToolchainError("fzf does not come to rest.")

    def _await_count(self, matches: int) -> None:
        text = b"m%d/%d" % (matches, _LINES)
        with self._news:
            if not self._news.wait_for(lambda: text in self._shown, DEADLINE_S):
                shown = bytes(self._shown[-1000:])
                raise ToolchainError(f"fzf does not show {text!r} but {shown!r}.")
            del self._shown[: self._shown.index(text) + len(text)]

    def _read(self) -> None:
        # Reading from a terminal whose other side is gone is an error, not an end of file.
        with contextlib.suppress(OSError):
            while data := os.read(self._terminal, 1 << 16):
                with self._news:
                    self._shown += data
                    self._news.notify_all()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        os.close(self._terminal)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()


if __name__ == "__main__":
    for known in PROGRAMS:
        print(fetch(known))
    speedscope_schema()
    axe_script()
    print(SPEEDSCOPE, AXE, sep="\n")
