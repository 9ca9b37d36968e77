"""Stacks whose memory only grows, as text for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.console.text import counted, duration, printable, quantity, well_formed
from ebpfprof.export.go_quotes import readable
from ebpfprof.export.tables.goroutines import fitting
from ebpfprof.export.tables.quantities import error_cell

if TYPE_CHECKING:
    from ebpfprof.profile.growth import Growing
    from ebpfprof.profile.model import Location

_TOO_FEW_SAMPLES: Final = 3
_MAX_STACKS: Final = 5
_MAX_FRAMES: Final = 6


class MemoryPlace(NamedTuple):
    """What holds memory: a stack; without one, objects of the type `name`, printable."""

    locations: tuple[Location, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a sample shows of process `pid`, `gone_s` seconds after the first one.

    `collections` is how many of the collections of garbage were checked, `in_use` the memory in
    use in all (bytes), `growing` what of it only grows.
    """

    pid: int
    name: str
    gone_s: float
    collections: int
    in_use: int
    growing: Sequence[Growing[MemoryPlace]]

    def render(self, width: int | None) -> str:
        """The text, at most `width` columns wide; None: no limit. Ends with a newline."""
        title = f"process {self.pid} ({self.name}), {duration(1e9 * self.gone_s)}: "
        title += f"{_bytes(self.in_use)} in use, {counted(self.collections, 'collection')} seen"
        if self.collections < _TOO_FEW_SAMPLES:
            title += f"; {_TOO_FEW_SAMPLES} are needed"
        elif not self.growing:
            title += "; nothing only grows"
        else:
            verb = "grows" if len(self.growing) == 1 else "grow"
            noun = "stack" if self.growing[0].key.locations else "kind"
            title += f"; {counted(len(self.growing), noun)} only {verb}"
        text = fitting(printable(title), width)
        for growing in self.growing[:_MAX_STACKS]:
            text += "\n" + fitting(_head(growing), width)
            text += "".join(fitting(line, width) for line in _frames(growing))
        rest = len(self.growing) - _MAX_STACKS
        return text + (f"\nand {rest} more\n" if rest > 0 else "")

    def encode(self) -> str:
        """A line of JSON."""
        return json.dumps(
            {
                "pid": self.pid,
                "name": well_formed(self.name),
                "seconds": self.gone_s,
                "collections": self.collections,
                "in_use_bytes": self.in_use,
                "growing": [
                    {
                        "in_use_bytes": growing.now,
                        "grown_bytes": growing.grown,
                        "error_bytes": round(growing.error),
                        "growth_bytes_per_minute": round(growing.per_minute),
                        "what": well_formed(growing.key.name),
                        "stack": [
                            {
                                "function": well_formed(frame.function),
                                "file": well_formed(frame.file),
                                "line": frame.line,
                            }
                            for location in growing.key.locations
                            for frame in location.frames
                        ],
                    }
                    for growing in self.growing
                ],
            }
        )


def _head(growing: Growing[MemoryPlace]) -> str:
    error = error_cell(growing.error / growing.grown, color=False)
    shown_error = f" ({error})" if error else ""
    rate = f"+{_bytes(growing.per_minute)} a minute"
    return f"{rate}, +{_bytes(growing.grown)}{shown_error} so far, {_bytes(growing.now)} in use:"


def _frames(growing: Growing[MemoryPlace]) -> list[str]:
    if not growing.key.locations:
        return [f"    {growing.key.name}"]
    frames = [frame for location in growing.key.locations for frame in location.frames]
    lines = [
        printable(f"    {readable(f.function)}  {f.file.rpartition('/')[2]}:{f.line}")
        for f in frames[:_MAX_FRAMES]
    ]
    rest = len(frames) - _MAX_FRAMES
    return [*lines, *([f"    and {counted(rest, 'more caller')}"] if rest > 0 else [])]


def _bytes(value: float) -> str:
    return quantity(value, "bytes")
