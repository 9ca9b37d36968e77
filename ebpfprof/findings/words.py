"""Words that sentences of several rules share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import percent

if TYPE_CHECKING:
    from ebpfprof.findings.work import Share
    from ebpfprof.profile.model import Frame

_ROUGH: Final = 0.1  # of the share: a smaller error is not worth a word


def place(frame: Frame) -> str:
    """Where it is: "(*PriceCache).refill (cache.go:86)"."""
    return f"{short(frame.function)} ({base(frame.file)}:{frame.line})"


def short(function: str) -> str:
    """A function without the path of its package: "http.(*conn).serve"."""
    head, bracket, rest = function.partition("[")
    return head.rpartition("/")[2] + bracket + rest


def base(path: str) -> str:
    """The name of a file without its folder."""
    return path.rpartition("/")[2]


def part(share: Share) -> str:
    """A share with its error: "54 %", or "54 ± 9 %" if that is worth knowing."""
    if share.error > _ROUGH * share.value:
        return f"{100 * share.value:.0f} ± {max(1, round(100 * share.error))} %"
    return percent(share.value)
