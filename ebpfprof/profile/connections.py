"""TCP connections, by what the kernel counted for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """A connection: its addresses as Go writes them, and counters since it was made.

    `sent` are segments with data, among them `resent`, which were sent again. Of these the peer
    reported `needless`: it had received them already.
    """

    local: str
    peer: str
    sent: int
    resent: int
    needless: int

    @property
    def lost(self) -> int:
        """The segments that were sent again and, as far as is known, had to be."""
        return max(0, self.resent - self.needless)
