"""What was recorded lately, window by window: differences of one snapshot and the next."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ebpfprof.profile.delta import difference, totals
from ebpfprof.profile.model import Profile

_BARE = 3
"""How many samples take the memory of a profile that has none: of its comments, most of all."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was recorded from `start_s` to `end_s` (Unix time): a difference for each kind."""

    start_s: float
    end_s: float
    profiles: Mapping[str, Profile]

    @property
    def size(self) -> int:
        """How much memory it takes, in samples."""
        return sum(_BARE + len(profile.samples) for profile in self.profiles.values())


@dataclass(slots=True)
class Windows:
    """The windows of one target, oldest first, and the sums that the next one is counted from.

    `totals` are those of all windows that there ever were, by kind: of each value of a profile.
    """

    begun_s: float = 0.0
    sums: dict[str, Profile] = field(default_factory=dict)
    totals: dict[str, list[int]] = field(default_factory=dict)
    kept: deque[Window] = field(default_factory=deque)

    def begin(self, now_s: float) -> None:
        """A window begins; while nothing is recorded, sums stay as they are."""
        self.begun_s = now_s

    def end(self, now_s: float, sums: Mapping[str, Profile], new: Mapping[str, Profile]) -> Window:
        """A window ends, and the next one begins.

        By kind, `sums` are those of now, and `new` is what has come since the window began.
        """
        found = {
            kind: difference(later, self.sums[kind]) if kind in self.sums else later
            for kind, later in sums.items()
        } | dict(new)
        window = Window(self.begun_s, now_s, found)
        self.kept.append(window)
        self.sums.update(sums)
        for kind, profile in found.items():
            before = self.totals.get(kind, [0] * len(profile.sample_types))
            self.totals[kind] = [sum(pair) for pair in zip(before, totals(profile), strict=True)]
        self.begun_s = now_s
        return window

    def between(self, kind: str, from_s: float, to_s: float) -> list[Profile]:
        """The differences of one kind that lie in a time, wholly or in part, oldest first."""
        return [
            window.profiles[kind]
            for window in self.kept
            if kind in window.profiles and window.end_s > from_s and window.start_s < to_s
        ]

    def forget(self, before_s: float) -> None:
        """Drop the windows that ended before a time."""
        while self.kept and self.kept[0].end_s < before_s:
            self.kept.popleft()


def make_room(all_windows: Sequence[Windows], max_samples: int) -> None:
    """Drop the oldest windows of all until no more memory is held than so many samples take."""
    size = sum(window.size for windows in all_windows for window in windows.kept)
    while size > max_samples:
        oldest = min((w for w in all_windows if w.kept), key=lambda w: w.kept[0].end_s)
        size -= oldest.kept.popleft().size
