"""Words that sentences of several rules share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import percent
from ebpfprof.profile.operations import caller_outside_library, operation_in

if TYPE_CHECKING:
    from ebpfprof.findings.work import Share
    from ebpfprof.profile.goroutines import DumpedGoroutine
    from ebpfprof.profile.model import Frame

_ROUGH: Final = 0.1  # of the share: a smaller error is not worth a word
_FEW: Final = 9.95  # a mean below is shown with a tenth
_MOST_ROUTES: Final = 3
_MOST_OF_ROUTE: Final = 80  # characters
_LEAST_OF_ROUTE: Final = 0.1  # of the requests: paths that all differ say nothing
_MOST: Final = 0.5  # of the samples: what is rarer is no typical thing


def place(frame: Frame) -> str:
    """Where it is: "(*PriceCache).refill (cache.go:86)"."""
    return f"{short(frame.function)} ({frame.position})"


def short(function: str) -> str:
    """A function without the path of its package: "http.(*conn).serve"."""
    head, bracket, rest = function.partition("[")
    return head.rpartition("/")[2] + bracket + rest


def part(share: Share) -> str:
    """A share with its error: "54 %", or "54 ± 9 %" if that is worth knowing."""
    if share.error > _ROUGH * share.value:
        return f"{100 * share.value:.0f} ± {max(1, round(100 * share.error))} %"
    return percent(share.value)


def mean(value: float) -> str:
    """A mean number of goroutines, or of others: "1.4", "830"."""
    return f"{value:.1f}" if value < _FEW else rounded(value)


def rounded(value: float) -> str:
    """A number with two digits: "2,500"."""
    return f"{float(f'{value:.2g}'):,.0f}"


def routes(goroutines: Iterable[DumpedGoroutine]) -> list[str]:
    """A sentence about the requests that goroutines handle, in a list; empty if none is known."""
    requests = (goroutine.request for goroutine in goroutines if goroutine.request)
    named = Counter(request.route[:_MOST_OF_ROUTE] for request in requests)
    largest = [
        f"{route} ({percent(count / named.total())})"
        for route, count in named.most_common(_MOST_ROUTES)
        if count >= _LEAST_OF_ROUTE * named.total()
    ]
    return [f"Requests that wait: {', '.join(largest)}."] if largest else []


def doing(goroutine: DumpedGoroutine, peer: str = "", *, has_place: bool = True) -> str:
    """What a goroutine does: "waits for 10.0.0.7:5432 in main.fetch (db.go:41)"."""
    wait, lock = goroutine.waits_for.file_wait, goroutine.waits_for.lock
    target = peer or (wait.file.peer if wait else "") or (lock.name if lock else "") or ""
    return doing_in(goroutine.state, goroutine.frames, target, has_place=has_place)


def doing_in(
    state: str, frames: Sequence[Frame], target: str = "", *, has_place: bool = True
) -> str:
    """The same of a state, the word of Go's tracebacks, and a stack, for a peer or a lock."""
    where = f" in {place(caller_outside_library(frames))}" if frames and has_place else ""
    if state == "running":
        return f"runs{where}"
    if state == "runnable":
        return f"waits for a processor{where}"
    if target:
        return f"waits for {target}{where}"
    return f"waits ({operation_in(state, frames)[0] if frames else state}){where}"


def mostly(texts: Iterable[str]) -> str:
    """What most of some texts say, with its part: "waits for 10.0.0.7:5432 (93 % of samples)".

    "" if none says it often.
    """
    numbers = Counter(texts)
    if not numbers:
        return ""
    text, number = numbers.most_common(1)[0]
    share = number / numbers.total()
    if share < _MOST:
        return ""
    return text if number == numbers.total() else f"{text} ({percent(share)} of samples)"


def cpus(number: float) -> str:
    """CPU time in CPUs: "1.5 CPUs", "0.02 CPUs"."""
    digits = ".1f" if number >= 1 else ".2f" if number >= 0.1 else ".1g"
    return f"{number:{digits}} CPUs"
