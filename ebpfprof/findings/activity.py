"""What goroutines did at one place: the rows of the time of work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ebpfprof.profile.model import Frame


Place = tuple[str, "Frame"]
"""An operation in words, and the frame of the program that does it."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What goroutines did at one place: `ns` is the time of all of them, `variance` that of `ns`.

    `operation` says it in words ("Mutex.Lock", "IO wait", "running", "runnable"), `place` is the
    frame of the program that did it, `frames` the whole stack, innermost first. `state` is the word
    of Go's tracebacks.
    """

    state: str
    operation: str
    place: Frame
    frames: tuple[Frame, ...]
    ns: int
    variance: float
    is_request: bool

    @property
    def at(self) -> Place:
        """Where it is, as in dumps."""
        return self.operation, self.place
