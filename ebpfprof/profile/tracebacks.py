"""Goroutines as Go's own tracebacks have them. Independent of how they were read and are written.

What a Go version shows of it, and how, is in TracebackRules; ebpfprof/export writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from symbolizer.go.arguments import Arguments
    from symbolizer.go.runtime_layout import TracebackRules


@dataclass(frozen=True, slots=True)
class LogicalCall:
    """A logical frame. `function` is the name in the binary, with all type arguments.

    `address` is the runtime address of the call, or of the instruction at which the function was
    interrupted; `offset` how many bytes that is behind the physical function's entry.
    `elides_wrapper` shows that tracebacks leave out a wrapper that made this call.
    """

    function: str
    file: str
    line: int
    address: int
    offset: int
    is_wrapper: bool = False
    elides_wrapper: bool = True
    is_finalizer: bool = False
    """Whether it is the loop that runs finalizers, or cleanups."""
    start_line: int = 0
    """The line of the `func` keyword, 0 before Go 1.20."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """An address on a stack: the calls that were inlined there, innermost first.

    The last one is the physical function; `return_offset` is how many bytes behind its entry it
    continues, `arguments` what is shown of its arguments.
    """

    calls: tuple[LogicalCall, ...]
    return_offset: int
    arguments: Arguments = ()


class PhysicalCall(NamedTuple):
    """A physical frame: where it is, and the values of its arguments.

    `values` has one for each Argument of the site; None where it could not be read.
    """

    site: CallSite
    values: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class TracedGoroutine:
    """A goroutine at the moment of the sample.

    `status` is the word of tracebacks: "running", "chan receive"; `reason` the name of the wait
    reason ("ChanReceive"), whose words `status` may be. `waited_ns` is how long ago the garbage
    collector saw it in this wait or system call first, 0 if it has not. `bubble` is the number of
    its synctest bubble or group. `labels` are None without a set, () for an empty one; they are in
    the set's own order.

    `frames` are innermost first. `has_stack` is False for a goroutine that runs, or kept moving:
    its frames are (). `is_whole` shows that they reach the outermost function; if not, `unknown_pc`
    is the return address that is of no function, or 0. `start` is the beginning of its outermost
    function, None if that is unknown. `creator` is the place of its `go` statement, None without
    one; `parent` the goroutine that executed it, 0 if unknown.
    """

    goid: int
    status: str
    reason: str
    is_waiting: bool
    is_leaked: bool
    is_scanned: bool
    waited_ns: int
    is_locked: bool
    bubble: int | None
    labels: tuple[tuple[bytes, bytes], ...] | None
    frames: tuple[PhysicalCall, ...]
    has_stack: bool
    is_whole: bool
    unknown_pc: int
    start: CallSite | None
    creator: CallSite | None
    parent: int


@dataclass(frozen=True, slots=True)
class TracebackStyle:
    """How the target writes tracebacks: what its version does, and whether it shows labels.

    A goroutine profile has `most_profiled` logical frames of each stack.
    """

    rules: TracebackRules
    shows_labels: bool
    most_profiled: int
