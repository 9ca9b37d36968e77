"""Events as the kernel wrote them, as those of a timeline."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import printable
from ebpfprof.kernel import c_facts
from ebpfprof.timeline.events import NO_P, Event, EventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from symbolizer.go.runtime_layout import RuntimeLayout

_NUMBERS: Final = c_facts.enum("trace/events.h", "event_kind")
_KINDS: Final = {number: EventKind[name] for name, number in _NUMBERS.items()}
_LABELLED: Final = (EventKind.PARK, EventKind.EXIT, EventKind.YIELD, EventKind.PREEMPT)
_UNKNOWN: Final = "unknown"
# No program has more; what is in its memory may be anything.
_MOST_GOID: Final = 1 << 48
_MOST_PS: Final = 1 << 16


class Decoder:
    """For one program."""

    def __init__(
        self, layout: RuntimeLayout, is_fault: Callable[[int], bool] = lambda entry: False
    ) -> None:
        """`is_fault` tells by its address whether the kernel is entered there for a fault."""
        texts = layout.wait_reason_texts
        self._reasons: Mapping[int, str] = {
            number: texts[name] for name, number in layout.wait_reasons.items()
        }
        self._is_fault = cache(is_fault)
        self._stop_reasons = layout.stop_reasons
        self.unreadable = 0
        """Events left out since what they say of goroutines can't be."""

    def events(self, rows: npt.NDArray[Any]) -> Iterator[Event]:
        """The events of rows of rings.EVENT, in their order."""
        names = ("at_ns", "kind", "goid", "by", "stack", "tid", "p", "cpu", "reason", "more")
        columns = [rows[name].tolist() for name in (*names, "is_made", "is_exit")]
        for at_ns, number, goid, by, stack, tid, p, cpu, reason, more, made, ends in zip(
            *columns, strict=True
        ):
            kind = _KINDS.get(number)
            if kind is EventKind.THREAD_WAKE:
                is_interrupt = bool(made) and not (goid and self._is_fault(goid))
                yield _wake(at_ns, stack, tid, cpu, more, waker=by, made=is_interrupt, own=ends)
                continue
            other = more if kind is EventKind.SWITCH else 0
            on = 0
            if kind is EventKind.PARK:  # the thread runs the goroutine that parks
                by, on = goid, by
            if kind is None or max(goid, by, other) > _MOST_GOID:
                self.unreadable += 1
                continue
            is_labelled = kind in _LABELLED
            yield Event(
                at_ns,
                kind,
                goid,
                by,
                stack,
                tid,
                p if 0 <= p < _MOST_PS else NO_P,
                cpu,
                self._word(kind, reason),
                0 if is_labelled else more,
                bool(made),
                bool(ends),
                more if is_labelled else 0,
                on,
            )

    def _word(self, kind: EventKind, reason: int) -> str:
        if kind is EventKind.SUSPEND:
            return "preempted"
        if kind is EventKind.STOP_WORLD:
            is_known = reason < len(self._stop_reasons)
            return self._stop_reasons[reason] if is_known else _UNKNOWN
        return self._reasons.get(reason, "")


def _wake(
    at_ns: int, stack: int, tid: int, cpu: int, more: int, *, waker: int, made: bool, own: int
) -> Event:
    name = stack.to_bytes(8, "little") + more.to_bytes(8, "little")
    return Event(
        *(at_ns, EventKind.THREAD_WAKE),
        tid=tid,
        cpu=cpu,
        word=printable(name.split(b"\0")[0].decode(errors="replace")),
        more=waker,
        is_made=made,
        is_exit=bool(own),
    )
