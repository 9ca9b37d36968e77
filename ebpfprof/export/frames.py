"""A profile's stacks as viewers draw them: a table of all frames, and stacks, root first."""

from collections.abc import Iterator
from dataclasses import dataclass

from ebpfprof.profile.model import UNKNOWN, Location, Sample


@dataclass(frozen=True, slots=True)
class ShownFrame:
    """A frame of a stack. `mapping` is a file name or ""; `line` is 0 if unknown."""

    function: str
    file: str
    line: int
    mapping: str
    is_inlined: bool


class FrameTable:
    """The frames of all samples so far, numbered in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[ShownFrame, int] = {}
        # By id(). We keep the location, too: after it is freed, another could get its id.
        self._of_location: dict[int, tuple[Location, list[int]]] = {}

    @property
    def frames(self) -> list[ShownFrame]:
        """All frames by their number."""
        return list(self._numbers)

    def stack(self, sample: Sample) -> list[int]:
        """The numbers of a sample's frames, root first; an inlined call is a frame, too."""
        numbers: list[int] = []
        known = self._of_location
        for location in reversed(sample.locations):
            numbered = known.get(id(location))
            if numbered is None:
                numbered = known[id(location)] = (location, self._of(location))
            numbers += numbered[1]
        return numbers

    def _of(self, location: Location) -> list[int]:
        return [
            self._numbers.setdefault(frame, len(self._numbers)) for frame in shown_frames(location)
        ]


def shown_frames(location: Location) -> Iterator[ShownFrame]:
    """The frames of a location, outermost first.

    As in pprof, an address without a name becomes a frame with the name of its file.
    """
    mapping = location.mapping.filename if location.mapping else ""
    if not location.frames:
        name = f"[{mapping.rpartition('/')[2].strip('[]')}]" if mapping else UNKNOWN
        yield ShownFrame(name, "", 0, mapping, is_inlined=False)
    is_inlined = False
    for frame in reversed(location.frames):
        name = frame.function or UNKNOWN
        yield ShownFrame(name, frame.file, frame.line, mapping, is_inlined)
        is_inlined = True
