"""Events as the kernel wrote them, as those of a timeline."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.console.text import printable
from ebpfprof.kernel import c_facts
from ebpfprof.timeline.events import NO_ANNOTATION, NO_P, Annotation, Event, EventKind
from ebpfprof.tracing.annotations import AnnotationTexts, no_constants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from symbolizer.go.runtime_layout import RuntimeLayout

_NUMBERS: Final = c_facts.enum("trace/events.h", "event_kind")
_TEXT_PIECE: Final = "TEXT_PIECE"
_PIECE_NUMBER: Final = _NUMBERS[_TEXT_PIECE]
_KINDS: Final = {
    number: EventKind[name] for name, number in _NUMBERS.items() if name != _TEXT_PIECE
}
_LABELLED: Final = (EventKind.PARK, EventKind.EXIT, EventKind.YIELD, EventKind.PREEMPT)
_UNKNOWN: Final = "unknown"
# No program has more; what is in its memory may be anything.
_MOST_GOID: Final = 1 << 48
_MOST_PS: Final = 1 << 16


class Decoder:
    """For one program."""

    def __init__(
        self,
        layout: RuntimeLayout,
        is_fault: Callable[[int], bool] = lambda entry: False,
        constant_at: Callable[[int, int], bytes | None] = no_constants,
    ) -> None:
        """`is_fault`: whether the kernel is entered at an address for a fault. `constant_at` is as
        of AnnotationTexts.
        """
        texts = layout.wait_reason_texts
        self._reasons: Mapping[int, str] = {
            number: texts[name] for name, number in layout.wait_reasons.items()
        }
        self._is_fault = cache(is_fault)
        self._stop_reasons = layout.stop_reasons
        self.texts = AnnotationTexts(constant_at)
        self.unreadable = 0
        """Events left out since what they say of goroutines can't be."""

    def events(self, rows: npt.NDArray[Any]) -> Iterator[Event]:
        """The events of rows of rings.EVENT, in their order."""
        names = ("at_ns", "kind", "goid", "by", "stack", "tid", "p", "cpu", "reason", "more")
        columns = [rows[name].tolist() for name in (*names, "is_made", "is_exit")]
        for at_ns, number, goid, by, stack, tid, p, cpu, reason, more, made, ends in zip(
            *columns, strict=True
        ):
            if number == _PIECE_NUMBER:
                words = (goid, by, stack, more)
                if event := self.texts.add(
                    tid, words, p, is_message=bool(reason), is_unread=bool(made)
                ):
                    yield event
                continue
            kind = _KINDS.get(number)
            if kind is EventKind.THREAD_WAKE:
                is_interrupt = bool(made) and not (goid and self._is_fault(goid))
                yield _wake(at_ns, stack, tid, cpu, more, waker=by, made=is_interrupt, own=ends)
                continue
            note = NO_ANNOTATION
            if kind and kind.is_annotation:
                note, by, more = Annotation(more, parent=by), goid, 0
            other = more if kind is EventKind.SWITCH else 0
            on = 0
            if kind is EventKind.PARK:  # the thread runs the goroutine that parks
                by, on = goid, by
            if kind is None or max(goid, by, other) > _MOST_GOID:
                self.unreadable += 1
                continue
            is_labelled = kind in _LABELLED
            event = Event(
                at_ns,
                kind,
                goid,
                by,
                stack,
                tid,
                p if 0 <= p < _MOST_PS else NO_P,
                cpu,
                "" if kind.is_annotation else self._word(kind, reason),
                0 if is_labelled else more,
                bool(made) and not kind.is_annotation,
                bool(ends),
                more if is_labelled else 0,
                on,
                note,
            )
            whole = self.texts.begin(event, reason, made) if kind.is_annotation else event
            if whole:
                yield whole

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
