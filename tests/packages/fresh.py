"""A Debian that nobody has touched, in a folder, and what packages do to it.

It takes debootstrap, and systemd-nspawn to boot it.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ebpfprof.privileges.checks import RECORDING
from tests.targets_run import DEADLINE_S
from tests.tools.bare_debian import Bare, install

# What apt, dpkg and Python's own packages leave of any installation.
_OF_APT: Final = ("var/lib/apt", "var/lib/dpkg", "var/cache", "var/log", "root", "tmp", "proc")
_OF_DEPENDENCIES: Final = "__pycache__"


@dataclass(frozen=True)
class Fresh:
    """A Debian 12 in a folder; commands in it run in a chroot, and see this machine's processes."""

    bare: Bare

    @classmethod
    def make(cls, folder: Path) -> Fresh:
        """Install one, with debootstrap."""
        install(folder)
        return cls(Bare(folder, None, is_container=False))

    @property
    def folder(self) -> Path:
        return self.bare.folder

    def copy(self, folder: Path) -> Fresh:
        """Another one that is the same."""
        subprocess.run(["cp", "-a", "--reflink=auto", self.folder, folder], check=True)
        return Fresh(Bare(folder, None, is_container=False))

    def run(self, script: str) -> str:
        """Run a shell script there, and return what it prints; fails if it fails."""
        done = subprocess.run(
            self.bare.command(script), stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def apt(self, *words: str) -> str:
        """Run apt-get, which asks nothing."""
        return self.run(
            "export DEBIAN_FRONTEND=noninteractive; apt-get -q -y --no-install-recommends "
            + shlex.join(words)
        )

    def files(self) -> set[str]:
        """All files and folders there, but for the package manager's own."""
        found = set[str]()
        for top, folders, names in os.walk(self.folder):
            inside = os.path.relpath(top, self.folder)
            if inside in _OF_APT or _OF_DEPENDENCIES in folders:
                folders[:] = [folder for folder in folders if folder != _OF_DEPENDENCIES]
            if inside in _OF_APT:
                folders.clear()
                continue
            found |= {os.path.normpath(os.path.join(inside, each)) for each in (*folders, *names)}
        return found

    @contextmanager
    def agent(self, command: str) -> Iterator[None]:
        """Run the agent as its unit does: with these rights and no others. Ends it."""
        rights = (*RECORDING, "CAP_SETPCAP", "CAP_SYS_ADMIN")
        names = ",".join(f"+{right.removeprefix('CAP_').lower()}" for right in sorted(rights))
        confined = f"setpriv --bounding-set=-all,{names} --no-new-privs {command}"
        running = subprocess.Popen(
            self.bare.command(f"exec {confined}"),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield
            running.send_signal(signal.SIGTERM)
            _, output = running.communicate(timeout=DEADLINE_S)
            assert running.returncode == 0, output
        finally:
            with suppress(ProcessLookupError):  # it has ended
                running.kill()
            running.wait()

    def until(self, script: str, words: Sequence[str]) -> str:
        """Run a script until it prints all these words."""
        until = time.monotonic() + DEADLINE_S
        while True:
            done = subprocess.run(self.bare.command(script), capture_output=True, text=True)
            if done.returncode == 0 and all(word in done.stdout for word in words):
                return done.stdout
            assert time.monotonic() < until, f"{done.stdout}\n{done.stderr}"
            time.sleep(0.5)


class Booted:
    """A Debian that systemd has booted, in namespaces of its own. A context manager."""

    def __init__(self, debian: Fresh) -> None:
        # Otherwise it can't boot where the controllers of cgroups are those of version 1.
        old = not Path("/sys/fs/cgroup/cgroup.controllers").exists()
        environment = {"SYSTEMD_SECCOMP": "0"}  # the unit's filter is what is tried
        if old:
            environment["SYSTEMD_NSPAWN_UNIFIED_HIERARCHY"] = "0"
        self._running = subprocess.Popen(
            [
                *("systemd-nspawn", "--directory", debian.folder, "--boot", "--console=pipe"),
                *("--capability=all", "--register=no", "--keep-unit", "--link-journal=no"),
                *("--resolv-conf=off", "--timezone=off"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
        self._first = ""  # the pid of its systemd, here

    def __enter__(self) -> Self:
        until = time.monotonic() + DEADLINE_S
        children = Path(f"/proc/{self._running.pid}/task/{self._running.pid}/children")
        while True:
            assert self._running.poll() is None, "it did not boot"
            assert time.monotonic() < until, "it did not boot"
            self._first = children.read_text().partition(" ")[0]
            if self._first and self.said("systemctl is-system-running") in ("running", "degraded"):
                return self
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self._running.kill()  # its first process goes with it, and all others with that
        self._running.wait()

    def command(self, *words: str) -> tuple[str, ...]:
        """What runs a command in there."""
        return "nsenter", "--target", self._first, "--all", *words

    def said(self, script: str) -> str:
        """What a shell script in there prints, however it ends."""
        command = self.command("sh", "-c", script)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return (done.stdout + done.stderr).strip()

    def until(self, script: str, words: str) -> None:
        """Run a script until it prints these words."""
        until = time.monotonic() + DEADLINE_S
        while words not in (output := self.said(script)):
            assert time.monotonic() < until, output
            time.sleep(0.2)
