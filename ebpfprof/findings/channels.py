"""Channels for which several requests wait at a time: what they are, and who works behind them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.findings.moments import Doing
from ebpfprof.findings.waits import Waits, waits_at

if TYPE_CHECKING:
    from ebpfprof.findings.activity import Place
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.moments import GoroutineMoment
    from ebpfprof.profile.goroutines import Channel
    from ebpfprof.profile.model import Frame

_SEND: Final = "chan send"
_RECEIVE: Final = "chan receive"
_OPERATIONS: Final = frozenset({_SEND, _RECEIVE, "select"})
_IDLE: Final = (_RECEIVE, "select", "sleep")
_LEAST_DUMPS: Final = 3  # in which goroutines wait for it: a channel that stays
_LEAST_WAITING: Final = 2  # at one time: a channel that several share
_BUSY: Final = 0.8  # of the dumps: one for which others wait is never idle
_LEAST_SHARE: Final = 0.5  # of the dumps with waiters, in which it is full or empty


@dataclass(frozen=True)
class Shared:
    """A channel that requests share. `waiting` are those in all dumps, in `dumps` of them.

    `is_send`: they wait to send, else to receive. `capacity` is that of the channel.
    """

    address: int
    capacity: int
    is_send: bool
    waiting: tuple[Doing, ...]
    dumps: tuple[GoroutineMoment, ...]

    @property
    def places(self) -> set[Place]:
        """Where they wait."""
        return {doing.place for doing in self.waiting}

    def is_waited_for(self, doing: Doing) -> bool:
        """Whether a goroutine waits for it."""
        return any(channel.address == self.address for channel in doing.goroutine.channels)

    def waits(self, evidence: Evidence) -> Waits:
        """The time for which goroutines wait for it where others do."""
        return waits_at(evidence, self.places, self.is_waited_for)


def shared_channels(evidence: Evidence) -> list[Shared]:
    """The channels for which several requests wait at a time, in several dumps; the worst first.

    In a program without requests, any goroutines but those that wait in the function that they
    began with: those wait for work.
    """
    waiting: dict[int, list[tuple[GoroutineMoment, Doing, Channel]]] = defaultdict(list)
    is_server = evidence.work.is_server
    for moment in evidence.moments.all:
        for doing in moment.all:
            if doing.operation in _OPERATIONS and (
                doing.is_request if is_server else _is_called(doing)
            ):
                for channel in doing.goroutine.channels:
                    waiting[channel.address].append((moment, doing, channel))
    shared = [
        candidate for address, seen in waiting.items() if (candidate := _shared(address, seen))
    ]
    return sorted(shared, key=lambda candidate: -len(candidate.waiting))


def _is_called(doing: Doing) -> bool:
    frames = doing.goroutine.frames
    return bool(frames) and doing.place[1].function != frames[-1].function


def _shared(address: int, seen: Sequence[tuple[GoroutineMoment, Doing, Channel]]) -> Shared | None:
    number = Counter(id(moment) for moment, _, _ in seen)
    if len(number) < _LEAST_DUMPS or max(number.values()) < _LEAST_WAITING:
        return None
    operations = Counter(doing.operation for _, doing, _ in seen)
    capacity = seen[0][2].capacity
    full = sum(channel.length == channel.capacity for _, _, channel in seen) / len(seen)
    empty = sum(channel.length == 0 for _, _, channel in seen) / len(seen)
    if operations[_SEND] or operations[_RECEIVE]:
        is_send = operations[_SEND] > operations[_RECEIVE]
    elif capacity and full != empty:
        is_send = full > empty
    else:
        return None  # a select for a channel without a buffer: that of a context, mostly
    if max(full, empty) < _LEAST_SHARE:
        return None
    moments = {id(moment): moment for moment, _, _ in seen}
    waiting = tuple(doing for _, doing, _ in seen)
    return Shared(address, capacity, is_send, waiting, tuple(moments.values()))


def users(waiting: Iterable[Doing], moment: GoroutineMoment) -> list[Doing]:
    """The goroutines of a dump that have passed the place where others wait, and are still behind.

    Their stacks are the same up to a function in which they are at a later line.
    """
    ways: dict[tuple[Frame, ...], set[tuple[str, int]]] = defaultdict(set)
    for doing in waiting:
        frames = doing.goroutine.frames
        for at, frame in enumerate(frames):
            ways[frames[at + 1 :]].add((frame.function, frame.line))
    passed = []
    for doing in moment.all:
        frames = doing.goroutine.frames
        for at, frame in enumerate(frames):
            lines = [
                line
                for function, line in ways.get(frames[at + 1 :], ())
                if function == frame.function
            ]
            if lines:
                if frame.line > min(lines):
                    passed.append(doing)
                break
    return passed


def partners(evidence: Evidence, channel: Shared) -> tuple[Doing, ...]:
    """The goroutines at the other end of a channel, in all dumps in which goroutines wait for it:
    they receive what those wait to send, or send what those wait to receive.

    They were seen to wait for the channel at another time. Or they stay, are at work, and belong to
    the same type or else the same package as those that wait. () if that is not clear.
    """
    operation = _SEND if channel.is_send else _RECEIVE
    seen = {
        doing.goroutine.goid
        for moment in evidence.moments.all
        for doing in moment.all
        if doing.operation != operation
        and channel.is_waited_for(doing)
        and doing.place not in channel.places
    }
    if seen:
        return _of(seen, channel.dumps)
    owners = {_owner(place[1].function) for place in channel.places}
    packages = {owner.partition("(")[0] for owner in owners}
    of_type: dict[str, list[Doing]] = defaultdict(list)
    of_package: dict[str, list[Doing]] = defaultdict(list)
    for moment in channel.dumps:
        for doing in moment.all:
            frames = doing.goroutine.frames
            if frames and not doing.is_request and doing.place not in channel.places:
                function = frames[-1].function
                if _owner(function) in owners:
                    of_type[function].append(doing)
                elif _owner(function).partition("(")[0] in packages:
                    of_package[function].append(doing)
    return _only_at_work(of_type) or _only_at_work(of_package)


def _only_at_work(by_function: dict[str, list[Doing]]) -> tuple[Doing, ...]:
    """The goroutines of the only function that is at work at nearly all moments."""
    at_work = [members for members in by_function.values() if are_at_work(members)]
    return tuple(at_work[0]) if len(at_work) == 1 else ()


def are_at_work(members: Sequence[Doing]) -> bool:
    """Whether goroutines were at work at nearly all moments: they waited for no other work."""
    at_work = sum(doing.operation not in _IDLE for doing in members)
    return at_work >= _BUSY * len(members)


def _of(goids: set[int], dumps: Iterable[GoroutineMoment]) -> tuple[Doing, ...]:
    return tuple(doing for moment in dumps for goid, doing in moment.by_id.items() if goid in goids)


def _owner(function: str) -> str:
    """The type of a method with its package, or else the package: "main.(*auditLog)", "main."."""
    head, bracket, rest = function.partition(".(")
    if bracket:
        return f"{head}.({rest.partition(')')[0]})"
    slash = function.rfind("/") + 1
    return function[:slash] + function[slash:].partition(".")[0] + "."
