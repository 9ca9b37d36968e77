"""Annotations and their texts, as the kernel wrote them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ebpfprof.kernel import c_facts
from ebpfprof.timeline.events import Annotation, Event, EventKind
from ebpfprof.tracing.decode import Decoder
from ebpfprof.tracing.rings import EVENT
from symbolizer.go.runtime_layout import layout_for
from symbolizer.go.version import GoVersion

NUMBERS = c_facts.enum("trace/events.h", "event_kind")
TEXT_BYTES = c_facts.number("trace/annotations.h", "TEXT_BYTES")
CONSTANT_AT, CONSTANT = 0x4A0000, b"parse"
WORDS = ("goid", "by", "stack", "more")


def rows(*of: dict[str, int]) -> Any:  # noqa: ANN401 - an array of EVENT
    found: Any = np.zeros(len(of), EVENT)
    for number, fields in enumerate(of):
        for name, value in fields.items():
            found[name][number] = value
    return found


def head(kind: str, names: int, messages: int = 0, tid: int = 1, **fields: int) -> dict[str, int]:
    return {
        **{"kind": NUMBERS[kind], "reason": names, "is_made": messages, "tid": tid, "goid": 7},
        **fields,
    }


def pieces(text: bytes, *, is_message: bool = False, tid: int = 1) -> list[dict[str, int]]:
    parts = [text[at : at + TEXT_BYTES] for at in range(0, len(text), TEXT_BYTES)]
    return [
        {
            **{"kind": NUMBERS["TEXT_PIECE"], "reason": is_message, "tid": tid, "p": len(part)},
            **dict(zip(WORDS, np.frombuffer(part.ljust(TEXT_BYTES, b"\xee"), "<u8"), strict=True)),
        }
        for part in parts
    ]


def constant_at(address: int, size: int) -> bytes | None:
    return CONSTANT[:size] if address == CONSTANT_AT else None


def decoded(*of: dict[str, int]) -> tuple[list[Event], Decoder]:
    decoder = Decoder(layout_for(GoVersion.parse("go1.27")), constant_at=constant_at)
    return list(decoder.events(rows(*of))), decoder


def test_a_task_has_its_type_and_its_parent() -> None:
    (event,), _ = decoded(head("TASK_BEGIN", 1, more=12, by=3, p=2), *pieces(b"order"))
    assert (event.kind, event.goid, event.by, event.p) == (EventKind.TASK_BEGIN, 7, 7, 2)
    assert event.note == Annotation(12, "order", 3)
    assert (event.more, event.is_made, event.word) == (0, False, "")


def test_a_message_has_texts_of_several_pieces() -> None:
    name, message = b"k" * TEXT_BYTES, b"0123456789" * 10
    (event,), _ = decoded(
        head("LOG", 1, 4, more=1), *pieces(name), *pieces(message, is_message=True)
    )
    assert event.note == Annotation(1, name.decode(), 0, message.decode())


def test_texts_of_threads_may_be_mixed() -> None:
    one, two = pieces(b"a" * 40), pieces(b"b" * 40, tid=2)
    events, _ = decoded(
        head("REGION_BEGIN", 2), head("REGION_BEGIN", 2, tid=2), one[0], two[0], two[1], one[1]
    )
    assert [(event.tid, event.note.name) for event in events] == [(2, "b" * 40), (1, "a" * 40)]


def test_without_a_text_there_is_nothing_to_wait_for() -> None:
    events, _ = decoded(head("TASK_END", 0, more=4), head("LOG", 0))
    assert [event.note for event in events] == [Annotation(4), Annotation()]


def test_a_text_whose_annotation_was_overwritten_is_left_out() -> None:
    events, _ = decoded(*pieces(b"lost"), head("REGION_END", 1), *pieces(b"kept"), *pieces(b"more"))
    assert [event.note.name for event in events] == ["kept"]


def test_a_constant_that_was_in_no_page_is_read_from_the_file() -> None:
    unread = {**pieces(CONSTANT)[0], "is_made": 1, "goid": CONSTANT_AT}
    (event,), decoder = decoded(head("REGION_BEGIN", 1), unread)
    assert event.note.name == CONSTANT.decode()
    assert decoder.texts.unreadable == 0


def test_a_text_that_is_nowhere_is_counted() -> None:
    unread = {**pieces(b"gone")[0], "is_made": 1, "goid": 0xDEAD}
    (event,), decoder = decoded(head("REGION_BEGIN", 1), unread)
    assert event.note.name == ""
    assert decoder.texts.unreadable == 1


def test_bytes_that_are_no_text_stay_harmless() -> None:
    piece = {**pieces(b"\xffa\xf0")[0]}
    (event,), _ = decoded(head("REGION_BEGIN", 1), piece)
    assert event.note.name == "\ufffda\ufffd"
    for size in (-5, 1 << 30):
        (event,), _ = decoded(head("REGION_BEGIN", 1), {**piece, "p": size})
        assert len(event.note.name) <= TEXT_BYTES
    assert decoded(head("TASK_BEGIN", 0, goid=(1 << 64) - 1))[1].unreadable == 1
