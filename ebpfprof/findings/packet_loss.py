"""Packets that the network loses: TCP sends them again, by the counters of each connection."""

from __future__ import annotations

import ipaddress
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted, percent
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.waits import Waits
from ebpfprof.findings.words import part, place
from ebpfprof.findings.work import Share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.profile.connections import TcpConnection

_LEAST_LOST: Final = 0.01
"""Of the segments with data: a data center loses less than 0.1 %, and each loss that no later
segment shows takes 200 ms or more (TCP_RTO_MIN)."""
_LEAST_ON_INTERNET: Final = 0.1
"""Of the segments to addresses on the Internet: phones on the move lose some percent."""
_LEAST_SEGMENTS: Final = 10  # that were lost: fewer may be one moment

_LEAST_PEERS: Final = 3
"""With losses: of fewer peers, one must lose enough by itself."""


@dataclass(slots=True)
class PacketLoss:
    """The segments with data that were sent to a peer, or to the clients of a port, and those that
    were lost. `peer` is "" for clients, which are `name`."""

    name: str
    peer: str
    is_on_internet: bool
    sent: int = 0
    lost: int = 0
    by_host: Counter[str] = field(default_factory=Counter)
    """The lost ones by the address of the client."""

    @property
    def share(self) -> Share:
        """The part that was lost."""
        value = min(1.0, self.lost / self.sent) if self.sent else 0.0
        return Share(value, math.sqrt(value * (1 - value) / self.sent) if self.sent else 0.0)

    @property
    def is_much(self) -> bool:
        """Whether it is a fault."""
        least = _LEAST_ON_INTERNET if self.is_on_internet else _LEAST_LOST
        return self.lost >= _LEAST_SEGMENTS and self.share.least >= least


def losses(evidence: Evidence) -> list[PacketLoss]:
    """What was sent to each peer, and to the clients of each port; the greatest loss first."""
    change = evidence.host_change
    if change is None:
        return []
    before, after = change.before.connections or {}, change.after.connections or {}
    by_name: dict[tuple[str, bool], PacketLoss] = {}
    for inode, connection in after.items():
        # One with other addresses has got the inode of one that was closed.
        then = before.get(inode)
        is_same = then is not None and _ends(then) == _ends(connection)
        sent, lost = (then.sent, then.lost) if then is not None and is_same else (0, 0)
        name, peer = _names(connection, evidence.moments.ports)
        is_on_internet = _is_on_internet(connection.peer)
        loss = by_name.setdefault((name, is_on_internet), PacketLoss(name, peer, is_on_internet))
        loss.sent += max(0, connection.sent - sent)
        lost = max(0, connection.lost - lost)
        loss.lost += lost
        if not peer:
            loss.by_host[connection.peer.rpartition(":")[0]] += lost
    return sorted(by_name.values(), key=lambda loss: -loss.lost)


def lossy_peers(evidence: Evidence) -> list[PacketLoss]:
    """Those of losses() that are a fault; if none is by itself, all together may be one."""
    known = losses(evidence)
    lossy = [loss for loss in known if loss.is_much]
    near = [loss for loss in known if not loss.is_on_internet]
    if lossy or sum(loss.lost > 0 for loss in near) < _LEAST_PEERS:
        return lossy
    all_of_them = PacketLoss(f"{len(near)} peers", "", is_on_internet=False)
    all_of_them.sent = sum(loss.sent for loss in near)
    all_of_them.lost = sum(loss.lost for loss in near)
    return [all_of_them] if all_of_them.is_much else []


def _ends(connection: TcpConnection) -> tuple[str, str]:
    return connection.local, connection.peer


def _names(connection: TcpConnection, ports: Iterable[str]) -> tuple[str, str]:
    port = connection.local.rpartition(":")[2]
    if port in ports:
        return f"clients of :{port}", ""
    return connection.peer, connection.peer


def _is_on_internet(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_global
    except ValueError:
        return False


def find(evidence: Evidence, by_peer: dict[str, Waits]) -> Iterator[Finding]:
    """The network loses packets to peers: one finding, with the part of the time of requests that
    waits for these (`by_peer`).
    """
    lossy = lossy_peers(evidence)
    if not lossy:
        return
    worst = lossy[0]
    waits = Waits()
    for loss in lossy:
        if loss.peer and loss.peer in by_peer:
            waits.parts += by_peer[loss.peer].parts
    share = waits.share(evidence)
    others = f" and {counted(len(lossy) - 1, 'other peer')}" if len(lossy) > 1 else ""
    lines = [f"TCP sent {worst.lost:,} of {worst.sent:,} segments to {worst.name} again."]
    if worst.by_host:
        ((host, lost),) = worst.by_host.most_common(1)
        lines = [f"{lines[0][:-1]}, {lost:,} of them to {host}."]
    if waits.parts:
        lines.append(
            f"{place(waits.place)} waits for its answers: {part(share)} of {evidence.work.of}."
        )
    yield Finding(
        kind="packet_loss",
        level=Level.SLOW,
        title=f"Packet loss: {part(worst.share)} of the packets to {worst.name}{others} are lost.",
        lines=tuple(lines),
        share=share.value if waits.parts else None,
        error=share.error,
        next=f"attach --pid {evidence.program.pid} --profile wall",
        place=waits.place if waits.parts else None,
    )


def fine(evidence: Evidence) -> str:
    """The part of the packets that were lost."""
    known = losses(evidence)
    sent, lost = sum(loss.sent for loss in known), sum(loss.lost for loss in known)
    return f"packet loss {percent(lost / sent)}" if sent else ""
