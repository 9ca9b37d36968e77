"""Tells systemd how a service is: a line to the socket that it names (sd_notify(3))."""

from __future__ import annotations

import os
import socket
import time
from typing import Final

_READY: Final = "READY=1"


class Notifier:
    """Tells the service manager; without one, nothing happens."""

    def __init__(self, address: str | None = None) -> None:
        """`address` is the path of a socket, "@" before an abstract one; else $NOTIFY_SOCKET."""
        self._address = os.environ.get("NOTIFY_SOCKET", "") if address is None else address
        self._alive_s = 0.0

    @property
    def watchdog_s(self) -> float:
        """How often alive() is to be called, in seconds: half of what systemd waits; 0: never."""
        try:
            return int(os.environ.get("WATCHDOG_USEC", "0")) / 2e6 if self._address else 0.0
        except ValueError:
            return 0.0

    def ready(self, status: str) -> None:
        """It has started, or has read its configuration again."""
        self._send(_READY, f"STATUS={status}")

    def status(self, status: str) -> None:
        """What it does, in words, for `systemctl status`."""
        self._send(f"STATUS={status}")

    def reloading(self) -> None:
        """It reads its configuration again; ready() says that it has."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """It ends."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """It does its work; does nothing if that was said less than `watchdog_s` ago."""
        if self.watchdog_s and time.monotonic() - self._alive_s >= self.watchdog_s:
            self._alive_s = time.monotonic()
            self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), address)
        except OSError:
            pass  # systemd then judges by the process alone
