"""What the holders of a lock do while they hold it: who they are, what they wait for, how long.

Dumps show who holds a lock, and in which line. Goroutine samples have the time of the stacks with
such a line, CPU samples the time for which these run.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import duration
from ebpfprof.findings.words import doing, doing_in, part, place
from ebpfprof.findings.work import Share
from ebpfprof.profile.operations import STATE, is_in_library

if TYPE_CHECKING:
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.moments import Doing
    from ebpfprof.profile.model import Frame

_LEAST_SAMPLES: Final = 20
"""Of the time of a hold: parts of fewer say nothing."""
_LEAST_PART: Final = 0.03
"""Of that time: what is less is not worth a word."""
_LEAST_LONG_NS: Final = 5_000_000  # a shorter hold is not worth a word
_MOST_PARTS: Final = 3
_MOST_HOLDERS: Final = 2
_ALWAYS: Final = 0.95
_ALL: Final = 0.995
_RUNNING: Final = "running"
_SYNC: Final = ("sync.", "internal/sync.")
_RUNNABLE: Final = "runnable"

_Line = tuple[str, int]
"""A function and a line of it."""


@dataclass(frozen=True, slots=True)
class LockHolder:
    """A goroutine that holds a lock at a moment; `by` is where it holds it, None if unknown."""

    doing: Doing
    by: Frame | None


class HoldTime:
    """The time for which a lock is held, by function and by what its holder does."""

    def __init__(
        self, evidence: Evidence, held: Sequence[LockHolder], locked_at: Mapping[str, int]
    ) -> None:
        """`held` are the holders that dumps saw while others waited. `locked_at` are the functions
        that wait for the lock, with the first line in which they do."""
        self._evidence, self._held = evidence, held
        self._locked_at = locked_at
        self._by: dict[_Line, Frame] = {
            (holder.by.function, holder.by.line): holder.by for holder in held if holder.by
        }
        self._by_function: Counter[str] = Counter()
        self._by_work: Counter[str] = Counter()
        self._samples = 0
        self.cpu_ns = 0
        self.runs_in: Frame | None = None
        """Where most of that CPU time is used."""
        self._add_cpu()
        self._add_waits()

    def sentences(self) -> list[str]:
        """Who holds it and for how long, and which part of that time is for what."""
        if not self._held:
            return []
        if not self._by:
            does, number = Counter(_text(holder.doing) for holder in self._held).most_common(1)[0]
            of_it = "" if number == len(self._held) else f" ({number} of {len(self._held)} samples)"
            return [f"Held by a goroutine that {does}{of_it}{self._longest}."]
        work = self._work()
        if not work:
            does = Counter(_text(holder.doing) for holder in self._held).most_common(1)[0][0]
            return [f"{self._holders}, which {does}{self._longest}."]
        (first, share), *others = work
        of_it = "All" if share.value > _ALL else part(share)
        parts = [
            f"{of_it} of that time it {first}",
            *(f"{part(share)} it {text}" for text, share in others),
        ]
        return [f"{self._holders}{self._longest}.", f"{', '.join(parts)}."]

    @property
    def _holders(self) -> str:
        """ "Held by main.f (x.go:5)", or the parts of several functions."""
        frames: dict[str, Frame] = {}
        for holder in self._held:
            if holder.by:
                frames.setdefault(holder.by.function, holder.by)
        known = Counter({name: ns for name, ns in self._by_function.items() if name in frames})
        ordered = [(frames[name], ns) for name, ns in known.most_common(_MOST_HOLDERS)]
        if not ordered:
            return f"Held by {place(next(iter(frames.values())))}"
        (first, most_ns), *others = ordered
        if most_ns >= _ALWAYS * known.total():
            return f"Held by {place(first)}"
        parts = [f"{100 * ns / known.total():.0f} % by {place(frame)}" for frame, ns in others]
        share = f"{100 * most_ns / known.total():.0f} %"
        return ", ".join([f"Held {share} of the time by {place(first)}", *parts])

    @property
    def _longest(self) -> str:
        """The longest hold that was seen in progress: what its holder waits for began later."""
        longest_ns = max((holder.doing.goroutine.waited_ns for holder in self._held), default=0)
        is_long = longest_ns >= _LEAST_LONG_NS
        return f", once for {duration(longest_ns, 2)} or longer" if is_long else ""

    def _work(self) -> list[tuple[str, Share]]:
        """What they do, with the part of the time; () if too few samples show it."""
        total = self._by_work.total()
        # Without CPU samples, the time for which they run is not known.
        if self._evidence.cpu is None or not total or self._samples < _LEAST_SAMPLES:
            return []
        shares = []
        for text, ns in self._by_work.most_common(_MOST_PARTS):
            value = ns / total
            error = math.sqrt(value * (1 - value) / self._samples)
            if value >= _LEAST_PART:
                shares.append((text, Share(value, error)))
        return shares

    def _add_waits(self) -> None:
        """The time of stacks with a line in which a goroutine holds the lock."""
        for sample in self._evidence.wall.samples if self._by else ():
            frames = tuple(sample.frames)
            by = next((frame for frame in frames if (frame.function, frame.line) in self._by), None)
            state = next((str(label.value) for label in sample.labels if label.key == STATE), "")
            if by is None or state == _RUNNING:
                continue
            ns = sample.values[-1]
            self._samples += sample.values[0]
            self._by_function[by.function] += ns
            moments = self._evidence.moments
            same = [other for other in moments.with_stack(frames) if other.goroutine.state == state]
            # Of a goroutine that moved meanwhile, the peer is not known, or is its client.
            known = [
                other
                for other in same
                if other.peer
                and (
                    frames in moments.client_waits
                    or not moments.is_of_client(other.goroutine.waits_for.file_wait)
                )
            ]
            texts = Counter(map(_text, known or same))
            texts = texts or Counter([doing_in(state, frames, has_place=state != _RUNNABLE)])
            for text, number in texts.items():
                self._by_work[text] += ns * number // texts.total()

    def _add_cpu(self) -> None:
        """The CPU time of stacks with such a line, or below the functions that lock it."""
        lines: Counter[Frame] = Counter()
        for sample in self._evidence.cpu.samples if self._evidence.cpu else ():
            frames = sample.frames
            at = next((at for at, frame in enumerate(frames) if self._may_hold(frame)), None)
            if at is None or any(frame.function.startswith(_SYNC) for frame in frames[:at]):
                continue
            ns = sample.values[-1]
            # What that function calls is more than the function itself.
            inner = [frame for frame in frames[: at + 1] if not is_in_library(frame.function)]
            inner = inner or list(frames[at : at + 1])  # a lock of Go's own library
            lines[inner[-2] if len(inner) > 1 else inner[-1]] += ns
            self._samples += sample.values[0]
            self._by_function[frames[at].function] += ns
        self.cpu_ns = lines.total()
        if self.cpu_ns:
            self.runs_in = _most(lines)
            self._by_work[f"runs in {place(self.runs_in)}"] = self.cpu_ns

    def _may_hold(self, frame: Frame) -> bool:
        if (frame.function, frame.line) in self._by:
            return True
        locked_at = self._locked_at.get(frame.function)
        return locked_at is not None and frame.line >= locked_at


def _text(holding: Doing) -> str:
    has_place = not holding.peer and holding.goroutine.state != _RUNNABLE
    return doing(holding.goroutine, holding.peer, has_place=has_place)


def _most(lines: Counter[Frame]) -> Frame:
    """The line with most of the time of the function with most of it."""
    by_function: defaultdict[str, list[Frame]] = defaultdict(list)
    for frame in lines:
        by_function[frame.function].append(frame)
    most = max(by_function.values(), key=lambda members: sum(lines[frame] for frame in members))
    return max(most, key=lambda frame: lines[frame])
