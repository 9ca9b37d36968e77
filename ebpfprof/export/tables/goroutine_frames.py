"""Frames of goroutines in tables and in JSON, and lines that fit the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Any, Final

from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.model import Frame

_RUNTIME: Final = ("runtime.", "internal/runtime/")
_FURTHER: Final = 4  # columns: by how much the second line of a long one is indented


def frame_as_json(frame: Frame) -> dict[str, Any]:
    """A frame for JSON."""
    return {"function": frame.function, "file": frame.file, "line": frame.line}


def shown_frames(goroutine: DumpedGoroutine) -> Sequence[Frame]:
    """The frames without the runtime's own, as Go's tracebacks; all if there are no others."""
    frames = goroutine.frames
    return [frame for frame in frames if not frame.function.startswith(_RUNTIME)] or frames


def wrapped(line: str, width: int | None) -> list[str]:
    """The line in pieces of at most `width` columns, if its words allow it; None: no limit."""
    if width is None or len(line) <= width:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    return wrap(
        line.strip(),
        max(width, len(indent) + 2 * _FURTHER),
        initial_indent=indent,
        subsequent_indent=indent + " " * _FURTHER,
        break_long_words=False,
        break_on_hyphens=False,
    )
