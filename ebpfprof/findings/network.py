"""Requests that wait for the network: for a slow peer, for a name server, for connections."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import duration
from ebpfprof.findings import packet_loss
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.moments import SHORT_NS, Doing, lasting, typical_ns
from ebpfprof.findings.waits import Waits
from ebpfprof.findings.words import mean, part, place
from ebpfprof.profile.network_peers import GRPC_ANSWER, HTTP_ANSWER

if TYPE_CHECKING:
    from ebpfprof.findings.activity import Activity, Place
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.work import Share
    from ebpfprof.profile.model import Frame

_LEAST_SHARE: Final = 0.2
"""Of the time of requests: below, a faster peer would hardly make them faster."""
_LEAST_WAITING: Final = 0.2
"""Requests at a time: a server that is nearly idle has no problem that anybody feels."""
_SLOW_NS: Final = 50_000_000
"""A peer in the same data center answers in a few milliseconds; 50 ms are felt by a person as part
of a page. Below, a peer may be as fast as what it does allows."""
_MOST: Final = 2
_ANSWERS: Final = (HTTP_ANSWER, GRPC_ANSWER)
_READS: Final = ("IO wait", "syscall read", "syscall write")
HTTP_CONNECTION: Final = "HTTP connection"
_DNS: Final = "DNS lookup"
# net/http, transport.go, Go 1.19 to 1.27: goroutines that make connections.
_DIALING: Final = (
    "net/http.(*Transport).dialConnFor",
    "net/http.(*Transport).startDialConnForLocked.func1",
)
_CONNECT: Final = ("net.(*netFD).connect", "net.(*netFD).dial")
_HANDSHAKE: Final = (
    "crypto/tls.(*Conn).HandshakeContext",
    "crypto/tls.(*Conn).Handshake",
    "crypto/tls.(*Conn).clientHandshake",
)
_NAME_SERVER: Final = "net.(*Resolver)."


def find(evidence: Evidence) -> Iterator[Finding]:
    """Name lookups and connects that take long; other peers that answer late, the worst first.

    To peers that answer late because packets are lost, that is the finding.
    """
    by_peer = _by_peer(evidence)
    yield from packet_loss.find(evidence, by_peer)
    # A peer is not reported twice.
    named = {loss.peer for loss in packet_loss.lossy_peers(evidence)}
    for finding, peer in _connecting(evidence):
        named.add(peer)
        yield finding
    peers = sorted(
        (
            (waits.share(evidence), peer, waits)
            for peer, waits in by_peer.items()
            if not peer or peer not in named
        ),
        key=lambda peer: -peer[0].value,
    )
    for share, peer, waits in peers[:_MOST]:
        if _is_much(evidence, waits, share) and _are_long(waits.seen):
            yield _slow_peer(evidence, peer, waits, share)


def fine(evidence: Evidence) -> str:
    """What was checked."""
    of_requests = any(
        activity.is_request and _is_answer(activity) for activity in evidence.work.activities
    )
    words = ("no slow peer" if of_requests else "", packet_loss.fine(evidence))
    return ", ".join(filter(None, words))


def _is_much(evidence: Evidence, waits: Waits, share: Share) -> bool:
    is_known = evidence.work.is_server
    return is_known and share.least >= _LEAST_SHARE and waits.mean(evidence) >= _LEAST_WAITING


def _are_long(seen: Sequence[Doing]) -> bool:
    """Whether waits of these goroutines take _SLOW_NS or longer, typically, within two errors."""
    old = lasting(seen, SHORT_NS)
    error = math.sqrt(old * (1 - old) / max(1, len(seen)))
    return old - 2 * error >= 1 - SHORT_NS / _SLOW_NS


def _slow_peer(evidence: Evidence, peer: str, waits: Waits, share: Share) -> Finding:
    name = f"Slow peer {peer}" if peer else "Slow peer"
    takes = f"{place(waits.place)} waits about {duration(typical_ns(waits.seen), 1)} each time"
    return Finding(
        kind="slow_peer",
        level=Level.SLOW,
        title=f"{name}: {part(share)} of {evidence.work.of}.",
        lines=(f"{takes}; {mean(waits.mean(evidence))} requests wait on average.",),
        share=share.value,
        error=share.error,
        next=f"attach --pid {evidence.program.pid} --profile wall",
        place=waits.place,
    )


def _by_peer(evidence: Evidence) -> dict[str, Waits]:
    """The waits of requests for answers, by the address of the peer; "" if it is not known."""
    moments = evidence.moments
    peers: dict[str, Waits] = defaultdict(Waits)
    for activity in evidence.work.activities:
        if not activity.is_request or not _is_answer(activity):
            continue
        seen = moments.of(activity)
        by_peer = defaultdict[str, list[Doing]](list)
        for doing in seen:
            by_peer[doing.peer].append(doing)
        for peer, of_peer in by_peer.items():
            peers[peer].add(activity, of_peer, len(seen))
        if not seen:
            peers[""].parts.append((activity, 1.0, 0.0))
    return peers


def _is_answer(activity: Activity) -> bool:
    if activity.operation in _ANSWERS:
        return True
    return activity.operation in _READS and not is_connecting(activity.frames)


def is_connecting(frames: Iterable[Frame]) -> str:
    """What of making a connection a stack is in: "DNS", "TLS", "connect"; "" for none."""
    functions = {frame.function for frame in frames}
    if not functions.isdisjoint(_HANDSHAKE):
        return "TLS"
    if not functions.isdisjoint(_CONNECT):
        # The name server is connected to, as well.
        of_dns = any(function.startswith(_NAME_SERVER) for function in functions)
        return "DNS" if of_dns else "connect"
    if any(function.startswith(_NAME_SERVER) for function in functions):
        return "DNS"
    return "connect" if not functions.isdisjoint(_DIALING) else ""


def dialing_part(evidence: Evidence) -> dict[str, float]:
    """Of the goroutines that wait for a connection of net/http: for which part one is being made.

    By what that does now (is_connecting). What is left waits for a connection to become free.
    """
    work = evidence.work
    waiting = work.mean(
        activity for activity in work.activities if activity.operation == HTTP_CONNECTION
    )
    parts: dict[str, float] = defaultdict(float)
    for activity in work.activities:
        if waiting and activity.frames and activity.frames[-1].function in _DIALING:
            parts[is_connecting(activity.frames)] += work.mean([activity]) / waiting
    scale = max(1.0, sum(parts.values()))
    return {stage: value / scale for stage, value in parts.items()}


def _connecting(evidence: Evidence) -> Iterator[tuple[Finding, str]]:
    """Connections that take long to make, and the address, "" if it is not known."""
    dialing = dialing_part(evidence)
    by_kind: dict[str, Waits] = defaultdict(Waits)
    for activity in evidence.work.activities:
        if not activity.is_request:
            continue
        if activity.operation == HTTP_CONNECTION:
            for stage, of_it in dialing.items():
                by_kind[stage].parts.append((activity, of_it, 0.0))
        elif activity.operation == _DNS:
            by_kind["DNS"].parts.append((activity, 1.0, 0.0))
        elif stage := is_connecting(activity.frames):
            by_kind[stage].parts.append((activity, 1.0, 0.0))
    names = _by_stage(evidence)
    for stage, waits in by_kind.items():
        share = waits.share(evidence)
        if _is_much(evidence, waits, share):
            common = names.get(stage, Counter()).most_common(1)
            peer = common[0][0] if common else ""
            yield _slow_connect(evidence, stage, waits, share, peer), peer


def _by_stage(evidence: Evidence) -> dict[str, Counter[str]]:
    """The addresses to which connections are made, by what that does (is_connecting)."""
    peers: dict[str, Counter[str]] = defaultdict(Counter)
    known: dict[Place, str] = {}
    for doing in evidence.moments.where(lambda goroutine: bool(goroutine.peer)):
        if doing.place not in known:
            known[doing.place] = is_connecting(doing.goroutine.frames)
        if stage := known[doing.place]:
            peers[stage][doing.peer] += 1
    return peers


def _slow_connect(evidence: Evidence, stage: str, waits: Waits, share: Share, peer: str) -> Finding:
    of = f"{part(share)} of {evidence.work.of}"
    if stage == "DNS":
        title = f"Slow name lookups: {of}."
        server = f"The name server {peer}" if peer else "The name server"
        line = f"{server} is asked in {place(waits.place)}."
    elif stage == "TLS":
        title = f"TLS handshakes with {peer or 'a peer'}: {of}."
        line = f"A connection is made in {place(waits.place)}."
    else:
        title = f"Slow connects to {peer or 'a peer'}: {of}."
        line = f"A connection is made in {place(waits.place)}."
    line += f" {mean(waits.mean(evidence))} requests wait for that on average."
    return Finding(
        kind="slow_dns" if stage == "DNS" else "slow_connect",
        level=Level.SLOW,
        title=title,
        lines=(line,),
        share=share.value,
        error=share.error,
        next=f"attach --pid {evidence.program.pid} --profile wall",
        place=waits.place,
    )
