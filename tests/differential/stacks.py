"""Two block profiles side by side: ours and the one Go wrote itself in the same run."""

from __future__ import annotations

from dataclasses import dataclass

from ebpfprof.profile.model import Profile
from tests.targets_run import SLOWNESS

# One physical frame: its address and its logical frames, innermost first, each as (function,
# file, line, start line).
Physical = tuple[int, tuple[tuple[str, str, int, int], ...]]
Stack = tuple[Physical, ...]
_PREEMPTED_NS = 1_000_000


@dataclass(frozen=True)
class Value:
    count: int
    delay_ns: int


def by_stack(profile: Profile) -> dict[Stack, Value]:
    """The samples of a profile, keyed by everything that is shown of their stacks."""
    found: dict[Stack, Value] = {}
    for sample in profile.samples:
        stack = tuple(
            (
                location.address,
                tuple((f.function, f.file, f.line, f.start_line) for f in location.frames),
            )
            for location in sample.locations
        )
        before = found.get(stack, Value(0, 0))
        count, delay_ns = sample.values
        found[stack] = Value(before.count + count, before.delay_ns + delay_ns)
    return found


def shown(stack: Stack) -> str:
    """A stack in one line, for messages."""
    return " | ".join(" < ".join(f"{f[0]}:{f[2]}" for f in frames) for _, frames in stack)


def differences(go: Profile, ours: Profile) -> list[str]:
    """Stacks that only one of the two has, and counts in which they disagree; empty is equal."""
    theirs, mine = by_stack(go), by_stack(ours)
    found = [f"only Go has {v.count}x {shown(s)}" for s, v in theirs.items() if s not in mine]
    found += [f"only we have {v.count}x {shown(s)}" for s, v in mine.items() if s not in theirs]
    found += [
        f"Go counts {theirs[stack].count}, we {mine[stack].count}: {shown(stack)}"
        for stack in theirs.keys() & mine.keys()
        if theirs[stack].count != mine[stack].count
    ]
    return found


def delay_differences(go: Profile, ours: Profile) -> dict[str, str]:
    """Stacks whose delays differ by more than 1 % or 50 µs an event, whichever is more.

    And by more than another thread may take, once, between the clock readings of Go and of us.
    Where processors are emulated (SLOWNESS), a probe between the two clock readings takes longer.

    By the stack in one line, which says by how much.
    """
    theirs, mine = by_stack(go), by_stack(ours)
    return {
        shown(stack): f"Go times {theirs[stack].delay_ns} ns, we {mine[stack].delay_ns} ns"
        for stack in theirs.keys() & mine.keys()
        if abs(theirs[stack].delay_ns - mine[stack].delay_ns)
        > max(theirs[stack].delay_ns // 100, theirs[stack].count * 50_000 * SLOWNESS)
        + _PREEMPTED_NS
    }
