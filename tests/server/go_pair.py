"""A process with an endpoint of its own (net/http/pprof), which ebpfprof serves, too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.server.serving import Answer, Server, ask
from tests.targets_run import Target


@dataclass(frozen=True)
class Pair:
    """A process, its own address and ours."""

    minor: str
    target: Target
    go: str
    ours: Server

    def both(self, path: str, **options: str) -> tuple[Answer, Answer]:
        """Go's answer and ours, asked for at the same time."""
        method = options.get("method", "GET")
        with ThreadPoolExecutor(2) as pool:
            asked = [
                pool.submit(ask, each, f"/debug/pprof{path}", method=method)
                for each in (self.go, self.ours.address)
            ]
            first, second = (each.result() for each in asked)
        return first, second
