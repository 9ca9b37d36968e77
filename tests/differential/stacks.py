"""Two block profiles side by side: ours and the one Go wrote itself in the same run."""

from __future__ import annotations

from dataclasses import dataclass

from ebpfprof.profile import Profile

# One physical frame: its address and its logical frames, innermost first, each as (function,
# file, line, start line).
Physical = tuple[int, tuple[tuple[str, str, int, int], ...]]
Stack = tuple[Physical, ...]


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
    """Everything in which the two disagree beyond what measuring allows; empty is equal.

    Stacks and counts must be the same. Delays may differ by 1 % or 50 µs an event, whichever
    is more: a probe takes its time a little later than Go, and takes time itself.
    """
    theirs, mine = by_stack(go), by_stack(ours)
    found = [f"only Go has {v.count}x {shown(s)}" for s, v in theirs.items() if s not in mine]
    found += [f"only we have {v.count}x {shown(s)}" for s, v in mine.items() if s not in theirs]
    for stack in theirs.keys() & mine.keys():
        a, b = theirs[stack], mine[stack]
        if a.count != b.count:
            found.append(f"Go counts {a.count}, we {b.count}: {shown(stack)}")
        elif abs(a.delay_ns - b.delay_ns) > max(a.delay_ns // 100, a.count * 50_000):
            found.append(f"Go times {a.delay_ns} ns, we {b.delay_ns} ns: {shown(stack)}")
    return found
