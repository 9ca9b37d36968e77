"""The texts of annotations, which follow their events in pieces (bpf/trace/annotations.h)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from symbolizer.errors import ElfError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.timeline.events import Event

_WORD_BYTES: Final = 8


@dataclass(slots=True)
class _Pending:
    """An annotation of which pieces are missing: their number, of its name and its message."""

    event: Event
    missing: list[int]
    texts: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))

    def whole(self) -> Event | None:
        if any(self.missing):
            return None
        name, message = (text.decode(errors="replace") for text in self.texts)
        return self.event._replace(note=self.event.note._replace(name=name, message=message))


class AnnotationTexts:
    """Puts annotations and their texts together again."""

    def __init__(self, constant_at: Callable[[int, int], bytes | None]) -> None:
        """`constant_at` reads a number of bytes at a runtime address that no program changes."""
        self._constant_at = constant_at
        self._pending: dict[int, _Pending] = {}  # by thread
        self.unreadable = 0
        """Texts that could not be read, not even later."""

    def begin(self, event: Event, name_pieces: int, message_pieces: int) -> Event | None:
        """Take an annotation. It is returned if it has no texts, else once they are there."""
        pending = _Pending(event, [name_pieces, message_pieces])
        self._pending[event.tid] = pending
        return pending.whole()

    def add(
        self, tid: int, words: Sequence[int], size: int, *, is_message: bool, is_unread: bool
    ) -> Event | None:
        """Take a piece of `size` bytes in 64-bit words; returns the annotation if it is the last.

        If it `is_unread`, the first word is its address.
        """
        pending = self._pending.get(tid)
        if pending is None or not pending.missing[is_message]:
            return None  # its annotation was overwritten
        pending.missing[is_message] -= 1
        size = max(0, min(size, _WORD_BYTES * len(words)))
        data: bytes | None = b"".join(word.to_bytes(_WORD_BYTES, "little") for word in words)
        if is_unread:
            data = self._constant_at(words[0], size)
            if data is None:
                self.unreadable += 1
        pending.texts[is_message].extend((data or b"")[:size])
        return pending.whole()


def constants_of(go: GoTarget) -> Callable[[int, int], bytes | None]:
    """Reads what is in a part of the program's file that the program can't change."""
    elf = go.binary.elf
    constant = [segment for segment in elf.segments if not segment.writable]

    def constant_at(address: int, size: int) -> bytes | None:
        linked = address - go.load_bias
        if not any(
            segment.vaddr <= linked < segment.vaddr + segment.filesz for segment in constant
        ):
            return None
        try:
            return elf.read(linked, size)
        except ElfError:
            return None

    return constant_at


def no_constants(address: int, size: int) -> bytes | None:
    """For events without a program."""
    return None
