"""Ports of loopback for servers that can't report which one they got."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])
