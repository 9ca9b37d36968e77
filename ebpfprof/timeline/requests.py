"""Requests on a connection, from outside: what its goroutines do between two waits for the peer.

A goroutine that reads a request, answers it and reads the next one (net/http.(*conn).serve) is
woken by the network at a request's begin, and waits for the connection again at its end. Where one
goroutine reads for others (HTTP/2, gRPC), a request is the life of a goroutine that it creates,
from that wake on. But for net/http, requests that follow each other without a wait look like one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.profile.operations import is_in_library
from ebpfprof.timeline.peers import Peers, port_of
from ebpfprof.timeline.spans import WAITING, Span, spans
from ebpfprof.timeline.steps import BY_NETWORK, StepKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ebpfprof.profile.waiting_for import OpenFile
    from ebpfprof.timeline.model import Timeline

_READS: Final = ("internal/poll.(*FD).Read", "internal/poll.(*FD).RawRead")
# The rest of a request that has begun (net/http/transfer.go).
_PARTS_OF_REQUESTS: Final = ("net/http.(*body).",)
# It waits for the end of a connection while a handler runs (net/http/server.go, Go 1.8 on).
_BACKGROUND_READER: Final = "net/http.(*connReader)."  # backgroundRead, or what calls it
# They read for other goroutines: net/http and golang.org/x/net/http2 (server.go), gRPC
# (internal/transport/http2_server.go). What a server of HTTP/2 creates to read and write frames is
# named so.
_READS_FOR_OTHERS: Final = ("erverConn).readFrames", "(*http2Server).HandleStreams")
_OF_FRAMES: Final = "Frame"


class Request(NamedTuple):
    """A request of a goroutine. It `is_begun` and `is_ended` if the trace shows that."""

    goid: int
    begin_ns: int
    end_ns: int
    is_begun: bool
    is_ended: bool

    @property
    def is_whole(self) -> bool:
        """Whether the trace shows all of it."""
        return self.is_begun and self.is_ended

    @property
    def length_ns(self) -> int:
        """How long it took, as far as the trace shows."""
        return self.end_ns - self.begin_ns


@dataclass(frozen=True, slots=True)
class ConnectionUse:
    """What was done on the connections with an address, in the order of time.

    `is_served`: their peers are clients. `waited_ns` is the time of all `waits` for them.
    """

    sockets: int
    is_served: bool
    requests: list[Request]
    waits: int
    waited_ns: int


def is_address(text: str) -> bool:
    """Whether a text is an address ("10.0.0.2:4242", "[::1]:80") or a port (":8080")."""
    host, colon, port = text.rpartition(":")
    return bool(colon) and port.isdigit() and "=" not in host


def connection(timeline: Timeline, address: str) -> ConnectionUse:
    """The requests on all connections from or to an address, or of a local port: ":8080"."""
    files = {
        key: span.file
        for key, span in timeline.objects.items()
        if span.file and not span.file.is_listener and _is_at(address, span.file)
    }
    # Of a connection within the program both ends are its own.
    if of_peer := {key: file for key, file in files.items() if file.peer == address}:
        files = of_peer
    requests = _Requests(timeline, set(files))
    peers = Peers(timeline.objects.values())
    return ConnectionUse(
        len({(file.local, file.peer) for file in files.values()}),
        any(map(peers.serves, files.values())),
        sorted(requests.all(), key=lambda span: (span.begin_ns, span.goid)),
        len(requests.waits),
        sum(wait.length_ns for wait in requests.waits),
    )


def _is_at(address: str, file: OpenFile) -> bool:
    if address.startswith(":"):
        return port_of(file.local) == address[1:]
    return address in (file.local, file.peer)


def _divided(request: Request, marks: Sequence[tuple[int, int]]) -> Iterator[Request]:
    """The requests that one consists of, by what _Requests._marks() says."""
    for at_ns, next_ns in marks:
        if request.begin_ns < at_ns and next_ns < request.end_ns:
            yield request._replace(end_ns=at_ns, is_ended=True)
            request = request._replace(begin_ns=at_ns, is_begun=True)
    yield request


def _ends_by_network(after: Span) -> bool:
    """Whether the network ended a wait, by the span after it.

    If data comes just as a goroutine parks, netpollblockcommit (runtime/netpoll.go, Go 1.19 to
    1.27) keeps it from parking. Then no wake is seen.
    """
    return after.word == BY_NETWORK or (not after.word and not after.by)


class _Requests:
    """Finds the requests on some sockets."""

    def __init__(self, timeline: Timeline, wanted: set[int]) -> None:
        self._timeline, self._wanted = timeline, wanted
        self._spans: dict[int, list[Span]] = defaultdict(list)
        self.waits: list[Span] = []
        """For the peers."""
        serving: set[int] = set()
        for span in spans(timeline):
            self._spans[span.goid].append(span)
            if span.state == WAITING and span.on in wanted:
                serving.add(self._served_by(span.goid))
                if not self._is_background(span.goid):
                    self.waits.append(span)
        self._serving = serving & self._spans.keys()
        self._created: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for step in timeline.steps:
            if step.kind is StepKind.CREATE:
                self._created[step.by].append((step.at_ns, step.goid))

    def all(self) -> Iterator[Request]:
        """All of them, in no order."""
        for goid in self._serving:
            marks = self._marks(goid)
            of = [
                part
                for wait in self._between_waits(goid)
                for part in _divided(wait, marks)
                if part.length_ns
            ]
            if self._reads_for_others(goid):
                yield from self._of_created(goid, [span.begin_ns for span in of if span.is_begun])
            else:
                yield from of

    def _served_by(self, goid: int) -> int:
        """The goroutine that handles what one reads that waits for a connection."""
        return self._timeline.goroutines[goid].parent if self._is_background(goid) else goid

    def _is_background(self, goid: int) -> bool:
        return self._name(goid).startswith(_BACKGROUND_READER)

    def _name(self, goid: int) -> str:
        goroutine = self._timeline.goroutines.get(goid)
        return goroutine.name if goroutine else ""

    def _functions(self, span: Span) -> tuple[str, ...]:
        return tuple(call.frame.function for call in self._timeline.stacks.get(span.stack, ()))

    def _reads_for_others(self, goid: int) -> bool:
        return any(
            name.endswith(_READS_FOR_OTHERS)
            for span in self._spans[goid]
            if span.on in self._wanted
            for name in self._functions(span)
        )

    def _between_waits(self, goid: int) -> Iterator[Request]:
        """Times in which a goroutine did something else than wait for the next request."""
        of = self._spans[goid]
        known = {self._functions(span) for span in of if span.on in self._wanted}
        begun: Request | None = None
        waited = does = woken = False
        for number, span in enumerate(of):
            last = of[number - 1] if number else None
            if last and span.begin_ns > last.end_ns:  # a pause of the recording
                if begun:
                    yield begun._replace(end_ns=last.end_ns)
                begun = last = None
            if self._awaits_request(span, known):
                if begun and (does or woken):
                    yield begun._replace(end_ns=span.begin_ns, is_ended=True)
                begun, waited = None, True
                continue
            if last is None or (waited and _ends_by_network(span)):
                woken, had_begun = last is not None, span.is_cut and last is None
                begun = Request(goid, span.begin_ns, span.end_ns, not had_begun, False)
                does = had_begun
            waited = False
            does = does or span.state == WAITING
        if begun is None:
            return
        # A goroutine that only finds the connection closed ends without having done anything.
        since_ns, end = begun.begin_ns, of[-1]
        does = does or any(at_ns >= since_ns for at_ns, _ in self._created.get(goid, ()))
        if end.is_cut or does:
            yield begun._replace(end_ns=end.end_ns, is_ended=not end.is_cut)

    def _marks(self, goid: int) -> list[tuple[int, int]]:
        """Where requests of net/http follow each other without a wait: when, and before what.

        There is a background reader for each, from when the request is read until it is answered,
        unless the next request came meanwhile.
        """
        readers = [span for span in self._created.get(goid, ()) if self._is_background(span[1])]
        marks = []
        for (_, reader), (next_ns, _) in pairwise(readers):
            of = self._spans[reader]
            has_read = any(span.word == BY_NETWORK for span in of)
            marks.append((next_ns if has_read else min(next_ns, of[-1].end_ns), next_ns))
        return marks

    def _awaits_request(self, span: Span, known: set[tuple[str, ...]]) -> bool:
        """Whether a wait is one for the next request; `known` are stacks of waits for the peer.

        What a wait of before the trace was for is not known.
        """
        if span.state != WAITING or (span.on not in self._wanted and span.on):
            return False
        names = self._functions(span)
        if span.on == 0:
            is_ours = names in known or (names and all(map(is_in_library, names)))
            if span.word != "IO wait" or not is_ours:
                return False
        if not names:
            return True
        is_read = any(name.startswith(_READS) for name in names)
        return is_read and not any(name.startswith(_PARTS_OF_REQUESTS) for name in names)

    def _of_created(self, reader: int, wakes: Sequence[int]) -> Iterator[Request]:
        """The goroutines that a reader creates, or its creator does for it, each for a request."""
        goroutine = self._timeline.goroutines.get(reader)
        for creator in {reader, goroutine.parent if goroutine else 0} - {0}:
            for at_ns, goid in self._created.get(creator, ()):
                if goid == reader or _OF_FRAMES in self._name(goid) or goid not in self._spans:
                    continue
                last = self._spans[goid][-1]
                earlier = [wake for wake in wakes if wake <= at_ns]
                begin_ns = earlier[-1] if earlier else at_ns
                yield Request(goid, begin_ns, last.end_ns, True, not last.is_cut)
