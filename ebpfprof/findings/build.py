"""How the program was built and started: what is fit for tests only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import listed
from ebpfprof.findings.finding import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ebpfprof.findings.evidence import Evidence

_MOST: Final = 2  # lines


def _is_on(value: str) -> bool:
    """As Go reads numbers (runtime/runtime1.go, parsegodebug): others don't count."""
    return value.lstrip("+-").isdecimal() and int(value) != 0


def _is_off(value: str) -> bool:
    return value.lstrip("+-").isdecimal() and int(value) == 0


_HARMFUL: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "asyncpreemptoff": (_is_on, "long loops delay collections and other goroutines"),
    "gcstoptheworld": (_is_on, "all goroutines stop for each collection"),
    "gccheckmark": (_is_on, "each collection stops all goroutines and marks twice"),
    "checkfinalizers": (_is_on, "collections stop all goroutines several times"),
    "clobberfree": (_is_on, "each freed object is overwritten"),
    "efence": (_is_on, "each object takes a page, which is never used again"),
    "sbrk": (_is_on, "memory is never freed"),
    "allocfreetrace": (_is_on, "each allocation is written to standard error with a stack"),
    "gcshrinkstackoff": (_is_on, "stacks never shrink"),
    "invalidptr": (_is_off, "invalid pointers are not noticed"),
    "madvdontneed": (_is_off, "the RSS stays high after memory was returned"),
    "gctrace": (_is_on, "each collection writes a line"),
    "gcpacertrace": (_is_on, "each collection writes lines"),
    "scavtrace": (_is_on, "each collection writes a line"),
    "schedtrace": (_is_on, "the scheduler stops to write its state"),
    "http2debug": (_is_on, "each HTTP/2 frame is logged"),
    "tracefpunwindoff": (_is_on, "traces and profiles cost more"),
}
"""Settings of GODEBUG that slow a program down, or hide errors, and why (runtime/extern.go, Go 1.19
to 1.27). All others are harmless, or are needed for old behaviour."""


def find(evidence: Evidence) -> Iterator[Finding]:
    """A build with the race detector; settings of GODEBUG for debugging."""
    program = evidence.program
    if program.is_race:
        yield Finding(
            kind="race_build",
            level=Level.NOTE,
            title="The program was built with -race: it needs 2 to 20 times the CPU time, and 5 to "
            "10 times the memory.",
        )
    harmful = [(name, value) for name, value in program.debug if _is_harmful(name, value)]
    if harmful:
        yield Finding(
            kind="debug_settings",
            level=Level.NOTE,
            title=f"GODEBUG has {listed([f'{name}={value}' for name, value in harmful])}.",
            lines=tuple(f"{name}={value}: {_HARMFUL[name][1]}." for name, value in harmful[:_MOST]),
        )


def fine(_evidence: Evidence) -> str:
    """Nothing: a program that was built well needs no word."""
    return ""


def _is_harmful(name: str, value: str) -> bool:
    return name in _HARMFUL and _HARMFUL[name][0](value)
