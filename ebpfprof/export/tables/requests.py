"""Requests on a connection, in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted, duration, printable
from ebpfprof.timeline.model import UNNAMED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.timeline.model import Timeline
    from ebpfprof.timeline.requests import ConnectionUse, Request

_S: Final = 1_000_000_000


def render(use: ConnectionUse, of: Sequence[Request], timeline: Timeline) -> str:
    """How many there are of the requests `of`, and how long they took. Ends with a newline."""
    if not use.sockets:
        return (
            "  No goroutine waited for such a connection: PATH is a peer (10.0.0.2:4242), a local "
            "address, or a local port (:8080).\n"
        )
    whole = [request for request in of if request.is_whole]
    noun = "request" if use.is_served else "time"
    lines = [f"{counted(len(whole), noun)} on {counted(use.sockets, 'connection')}"]
    if whole:
        total_ns = sum(request.length_ns for request in whole)
        slowest = max(whole, key=lambda one: one.length_ns)
        lines[0] += f": {duration(total_ns)}, mean {duration(total_ns / len(whole))}"
        lines.append(f"the slowest took {described(slowest, timeline)}")
    if cut := [request for request in of if not request.is_whole]:
        longest = max(cut, key=lambda one: one.length_ns)
        lines += [
            f"{counted(len(cut), noun)} more began before the trace, or continued past its end or "
            "into a pause;",
            f"the longest took {described(longest, timeline)} at least",
        ]
    between = "between them" if use.is_served else "the waits"
    lines.append(f"{between}: {duration(use.waited_ns)} in {counted(use.waits, 'wait')}")
    return "".join(f"  {line}\n" for line in lines)


def described(request: Request, timeline: Timeline) -> str:
    """How long a request took, when, and whose it was: "212 ms at 1.234 s (G17 main.serve)"."""
    goroutine = timeline.goroutines.get(request.goid)
    name = printable(goroutine.name) if goroutine else UNNAMED
    at_s = (request.begin_ns - timeline.begin_ns) / _S
    return f"{duration(request.length_ns)} at {at_s:.3f} s (G{request.goid} {name})"
