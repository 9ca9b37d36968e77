"""A finding: one thing that is wrong with a process."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from ebpfprof.profile.model import Frame


class Level(IntEnum):
    """How bad a finding is; findings of one level are ordered by their share."""

    NOTE = 0
    """It works, but not as it should in production."""
    RISK = 1
    """It will become a failure if it continues: growth, leaks, a limit that is near."""
    SLOW = 2
    """Requests, or the work of the program, take longer than they need to."""
    STUCK = 3
    """Goroutines can never continue, or have not for long."""


Subject: TypeAlias = "Frame | int | str"
"""A line of code, the address of a lock or of a channel, a function that allocates, or a name."""
MORE_GOROUTINES: Final = "more goroutines"
"""What a finding is about that has more and more goroutines: their memory grows."""
MOST_CPU_TIME: Final = "most CPU time"
"""What a finding is about that takes most of the CPU time: without it there are enough CPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong.

    `kind` is its name for programs, such as "hot_lock". `title` is a sentence with the share in it,
    `lines` are sentences with the evidence. `share` is the part (0 to 1) of the time of requests,
    or of the CPU time, that it takes, `error` its standard error; None where no share is known.
    `next` is what to type next, without `sudo ebpfprof`. `place` is the line of code. `about` is
    what it has in common with findings that follow from it.

    Texts may have text of the target in them: they are not fit for a terminal before printable().
    """

    kind: str
    level: Level
    title: str
    lines: tuple[str, ...] = ()
    share: float | None = None
    error: float = 0.0
    of_time: float | None = None
    """Where the share is of CPU time: which part of the time of requests that is, with the time for
    which they wait for a CPU."""
    next: str = ""
    is_certain: bool = False
    place: Frame | None = None
    about: frozenset[Subject] = frozenset()

    @property
    def rank(self) -> tuple[int, float]:
        """What findings are ordered by, the worst one has the highest."""
        share = self.share if self.of_time is None else self.of_time
        return self.level, share or 0.0
