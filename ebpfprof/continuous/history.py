"""What was recorded of a process lately, window by window."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ebpfprof.profile.completeness import Completeness
from ebpfprof.profile.delta import merged, totals
from ebpfprof.profile.length_counts import LengthCounts, known_waits
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.registry import find_kind

_BARE = 3
"""How many samples use as much memory as a profile without any, mostly for its comments."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was recorded from `start_s` to `end_s` (Unix time), by the names of kinds."""

    start_s: float
    end_s: float
    profiles: Mapping[str, Profile]

    @property
    def size(self) -> int:
        """How much memory it uses, in samples."""
        return sum(_BARE + len(profile.samples) for profile in self.profiles.values())


@dataclass(slots=True)
class History:
    """The windows of one process, oldest first.

    `sums` are the profiles since the first recording, at the end of the last window. `totals` are
    the sums of each value of a profile over all windows, also those that were dropped, by kind;
    kinds that show a moment have none. `lengths` has the waits of kinds of waits of these windows
    by how long they were. `present` is what the window that has not ended had when it
    was last read, None if it was not read: it is not among the windows.
    """

    begun_s: float = 0.0
    present: Window | None = None
    windows: deque[Window] = field(default_factory=deque)
    sums: dict[str, Profile] = field(default_factory=dict)
    totals: dict[str, list[int]] = field(default_factory=dict)
    lengths: dict[str, LengthCounts] = field(default_factory=dict)

    def begin(self, now_s: float) -> None:
        """A window begins at this Unix time. While nothing is recorded, sums do not grow."""
        self.begun_s, self.present = now_s, None

    @property
    def read_s(self) -> float:
        """When the present window was last read, or began; Unix time."""
        return self.present.end_s if self.present else self.begun_s

    def read(self, now_s: float, sums: Mapping[str, Profile], new: Mapping[str, Profile]) -> None:
        """Keep what the present window has at this Unix time; arguments as for end()."""
        self.present = Window(self.begun_s, now_s, _shown(sums, new))

    def end(self, now_s: float, sums: Mapping[str, Profile], new: Mapping[str, Profile]) -> Window:
        """End the window at this Unix time, and begin the next one.

        By kind, `sums` are the profiles since the first recording, and `new` those of this window.
        """
        window = Window(self.begun_s, now_s, _shown(sums, new))
        self.windows.append(window)
        self.sums.update(
            {kind: sums_of_kind for kind, sums_of_kind in sums.items() if not _is_moment(kind)}
        )
        for kind, profile in window.profiles.items():
            if not _is_moment(kind):
                before = self.totals.get(kind, [0] * len(profile.sample_types))
                pairs = zip(before, totals(profile), strict=True)
                self.totals[kind] = [sum(pair) for pair in pairs]
                if waits := known_waits(profile):
                    self.lengths.setdefault(kind, LengthCounts()).add(waits)
        self.begin(now_s)
        return window

    def completeness(self) -> list[Completeness]:
        """Of each kind, how much was lost since the first recording."""
        accounts = (profile.account for profile in self.sums.values())
        return [account.completeness for account in accounts if account]

    def between(self, kind: str, from_s: float, to_s: float) -> list[Profile]:
        """The profiles of the windows that lie in a time, wholly or in part, oldest first.

        With that of the present window as it was last read.
        """
        windows = [*self.windows, *([self.present] if self.present else ())]
        return [
            window.profiles[kind]
            for window in windows
            if kind in window.profiles and window.end_s > from_s and window.start_s < to_s
        ]

    def forget(self, before_s: float) -> None:
        """Drop the windows that ended before this Unix time."""
        while self.windows and self.windows[0].end_s < before_s:
            self.windows.popleft()


def _shown(sums: Mapping[str, Profile], new: Mapping[str, Profile]) -> dict[str, Profile]:
    """What a window has: of kinds that show a moment, that at its end."""
    return {kind: sums[kind] if _is_moment(kind) else profile for kind, profile in new.items()}


def together(kind: str, profiles: Sequence[Profile]) -> Profile:
    """One profile of consecutive windows: their sum, or the last one of a kind of a moment.

    Raises ValueError if there is none.
    """
    return profiles[-1] if profiles and _is_moment(kind) else merged(profiles)


def limit_size(histories: Sequence[History], max_samples: int) -> None:
    """Drop the oldest windows of all until they use no more memory than `max_samples` samples."""
    # A thread may append one meanwhile: hence a copy of each.
    size = sum(window.size for history in histories for window in list(history.windows))
    while size > max_samples:
        oldest = min((h for h in histories if h.windows), key=lambda h: h.windows[0].end_s)
        size -= oldest.windows.popleft().size


def _is_moment(kind: str) -> bool:
    listed = find_kind(kind)
    return listed is not None and listed.is_moment
