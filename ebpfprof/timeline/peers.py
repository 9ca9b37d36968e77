"""Names for the other ends of sockets; the clients of a port are one."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ebpfprof.profile.file_words import kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ebpfprof.profile.waiting_for import OpenFile
    from ebpfprof.timeline.model import WaitObject


def port_of(address: str) -> str:
    """The port of an address as Go writes it: "8080"."""
    return address.rpartition(":")[2]


class Peers:
    """Knows on which ports a program serves, by its sockets: it listens, or has several clients."""

    def __init__(self, objects: Iterable[WaitObject]) -> None:
        peers: dict[str, set[str]] = defaultdict(set)
        self._served: set[str] = set()
        for waited in objects:
            if waited.file and waited.file.local:
                port = port_of(waited.file.local)
                peers[port].add(waited.file.peer)
                if waited.file.is_listener:
                    self._served.add(port)
        self._served |= {port for port, addresses in peers.items() if len(addresses) > 1}

    def serves(self, file: OpenFile) -> bool:
        """Whether it is a connection that a client made, or waits for one."""
        return file.is_listener or port_of(file.local) in self._served

    def name(self, on: WaitObject | None) -> str:
        """Whom a wait for the network is for; "" if that is not known."""
        if on is None:
            return ""
        if on.file is None:
            return on.name
        if on.file.local and self.serves(on.file):
            return f"clients of :{port_of(on.file.local)}"
        return end_of(on.file)


def end_of(file: OpenFile) -> str:
    """The other end of a connection, or what it is: "a pipe"."""
    if file.is_listener:
        return f"clients of {file.local or file.path}"
    return file.peer or kind(file)
