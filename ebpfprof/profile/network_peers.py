"""For which peer goroutines of a dump wait: by their sockets, and by the connections of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump
    from ebpfprof.profile.waiting_for import FileWait

HTTP_ANSWER: Final = "HTTP answer"
GRPC_ANSWER: Final = "gRPC answer"
READ_LOOP: Final = "net/http.(*persistConn).readLoop"
_WRITE_LOOP: Final = "net/http.(*persistConn).writeLoop"
_GRPC_READER: Final = "google.golang.org/grpc/internal/transport.(*http2Client).reader"


class NetworkPeers:
    """The peers of the goroutines of one dump.

    For the clients of net/http: persistConn.roundTrip and the writeLoop of the connection both wait
    for the channel closech; the readLoop, which has the connection, was started by the same
    goroutine (net/http, transport.go, Go 1.19 to 1.27).
    """

    def __init__(self, dump: GoroutineDump) -> None:
        self._makers: dict[int, int] = {}
        """The goroutine that made the connection, by its channels."""
        self._peers: dict[int, str] = {}
        """By the goroutine that made the connection."""
        of_grpc: set[str] = set()
        self._ports: set[str] = set()
        for goroutine in dump.goroutines:
            outermost = goroutine.frames[-1].function if goroutine.frames else ""
            wait = goroutine.waits_for.file_wait
            if wait is not None and wait.file.is_listener:
                self._ports.add(local_port(wait))
            if outermost == _WRITE_LOOP:
                self._makers |= {one.address: goroutine.parent for one in goroutine.channels}
            elif outermost == READ_LOOP and wait is not None and wait.file.peer:
                self._peers[goroutine.parent] = wait.file.peer
            elif outermost == _GRPC_READER and wait is not None and wait.file.peer:
                of_grpc.add(wait.file.peer)
        # Calls of gRPC don't show their peer: it is known if there is only one.
        self._of_grpc = of_grpc.pop() if len(of_grpc) == 1 else ""

    def of(self, goroutine: DumpedGoroutine, operation: str, *, is_sure: bool = False) -> str:
        """The peer for which a goroutine waits in this operation (profile.operations).

        "" if it waits for none, or for an unknown one. Unless it must be sure, an HTTP answer whose
        connection is not known is that of the only peer, if there is only one.
        """
        if operation == HTTP_ANSWER:
            return self._of_http(goroutine, is_sure=is_sure)
        if operation == GRPC_ANSWER:
            return self._of_grpc
        wait = goroutine.waits_for.file_wait
        return wait.file.peer if wait is not None else ""

    def is_client(self, goroutine: DumpedGoroutine) -> bool:
        """Whether a goroutine waits on a connection that was accepted at a port of the dump."""
        wait = goroutine.waits_for.file_wait
        return wait is not None and local_port(wait) in self._ports

    def _of_http(self, goroutine: DumpedGoroutine, *, is_sure: bool) -> str:
        for channel in goroutine.channels:
            maker = self._makers.get(channel.address)
            if maker is not None and maker in self._peers:
                return self._peers[maker]
        peers = set(self._peers.values())
        return peers.pop() if len(peers) == 1 and not is_sure else ""


def local_port(wait: FileWait) -> str:
    """The local port of a connection or of a listener; "" if it has none."""
    return wait.file.local.rpartition(":")[2]
