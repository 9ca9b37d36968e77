"""What handlers were seen with: which routes they serve, for which peers they wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.model import PeerSamples

if TYPE_CHECKING:
    from ebpfprof.profile.goroutines import HttpRequest

_LEAST_GOROUTINES: Final = 3
"""Fewer requests of one path say little: that after /items/17 may be /items/18."""
_SEVERAL: Final = 2
_MOST_FUNCTIONS: Final = 1 << 12
_MOST_TEXT: Final = 200
"""Characters of a route: the rest is cut off."""
_MOST_PEERS: Final = 8
OTHER_PEERS: Final = "others"


@dataclass(slots=True)
class _Seen:
    """What a handler was seen with: no more of each than it takes to know a route."""

    patterns: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)
    goroutines: set[int] = field(default_factory=set)

    def add(self, goid: int, request: HttpRequest) -> None:
        names = request.pattern, request.path, request.method
        for kept, name in zip((self.patterns, self.paths, self.methods), names, strict=True):
            if len(kept) < _SEVERAL:
                kept.add(name)
        if len(self.goroutines) < _LEAST_GOROUTINES:
            self.goroutines.add(goid)

    @property
    def route(self) -> str:
        """The route; "" if it is not known, or if there are several."""
        if len(self.patterns) != 1:
            return ""
        (name,) = self.patterns
        if not name:
            if len(self.paths) != 1 or len(self.goroutines) < _LEAST_GOROUTINES:
                return ""
            (name,) = self.paths
        if len(self.methods) != 1:
            return name
        (method,) = self.methods
        return name if name.startswith(f"{method} ") else f"{method} {name}"


class SeenRoutes:
    """What handlers were seen with: as much as shows whether they have one route or several."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def add(self, function: str, goid: int, request: HttpRequest) -> None:
        """A goroutine handled this request in a handler, a Handler.function."""
        if function in self._seen or len(self._seen) < _MOST_FUNCTIONS:
            self._seen.setdefault(function, _Seen()).add(goid, request)

    def by_function(self) -> dict[str, str]:
        """The routes by handler: "GET /items/{id}". A handler with several routes has none.

        Where the router leaves no pattern, it is the path, if several goroutines had the same.
        """
        routes = {name: seen.route[:_MOST_TEXT] for name, seen in self._seen.items()}
        return {name: route for name, route in routes.items() if route}


class SeenPeers:
    """For which peers handlers were seen waiting: of many peers, the first ones."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], Counter[str]] = {}

    def add(self, function: str, operation: str, peer: str) -> None:
        """A goroutine of a handler, a Handler.function, waited for a peer in this operation."""
        key = function, operation
        if key in self._seen or len(self._seen) < _MOST_FUNCTIONS:
            peers = self._seen.setdefault(key, Counter())
            has_room = peer in peers or len(peers) < _MOST_PEERS
            peers[peer if has_room else OTHER_PEERS] += 1

    def all(self) -> tuple[PeerSamples, ...]:
        """What was seen, with functions as the names of handlers."""
        return tuple(
            PeerSamples(function, operation, peer, samples)
            for (function, operation), peers in self._seen.items()
            for peer, samples in peers.most_common()
        )
