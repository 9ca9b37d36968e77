"""Folded stacks: a line for each stack, `root;caller;leaf 42`, as flamegraph.pl reads them.

Speedscope, Perfetto, Firefox's profiler and Pyroscope read them, too. (Firefox makes one sample for
each unit of the number: give it counts, not nanoseconds.)
"""

from collections.abc import Iterable, Sequence
from operator import add

from ebpfprof.console.text import printable
from ebpfprof.errors import InvalidProfile
from ebpfprof.export.frames import FrameTable
from ebpfprof.profile.model import UNKNOWN, Profile

MAX_BYTES = 1 << 30
"""The largest output: each line repeats names, so the output for a small file may be huge."""


def encode(profile: Profile, *, index: int = -1) -> bytes:
    """The stacks with the values at `index`; stacks of equal names share one line.

    Inlined functions are frames, too. Raises InvalidProfile if a value is negative, as in a
    difference, which readers refuse; or if the result would be larger than MAX_BYTES.
    """
    sums = _sums([profile], index)
    return _lines((stack, f"{value}") for stack, (value,) in sums.items())


def encode_difference(profile: Profile, base: Profile, *, index: int = -1) -> bytes:
    """The stacks of both profiles, `root;caller;leaf BASE VALUE`, as difffolded.pl writes them.

    flamegraph.pl draws them. Raises InvalidProfile as encode() does.
    """
    sums = _sums([base, profile], index)
    return _lines((stack, f"{before} {after}") for stack, (before, after) in sums.items())


def _sums(profiles: Sequence[Profile], index: int) -> dict[tuple[str, ...], list[int]]:
    """The values of each profile by stack, without stacks whose values are all 0."""
    table = FrameTable()
    by_frames: dict[tuple[int, ...], list[int]] = {}
    for column, profile in enumerate(profiles):
        for sample in profile.samples:
            value = sample.values[index]
            if value < 0:
                raise InvalidProfile(
                    "Folded stacks cannot show negative values, such as those of a difference: "
                    "use another format, or ebpfprof diff on the two profiles."
                )
            if value:
                stack = tuple(table.stack(sample))
                by_frames.setdefault(stack, [0] * len(profiles))[column] += value
    names = [_name(frame.function) for frame in table.frames]
    sums: dict[tuple[str, ...], list[int]] = {}
    for stack, values in by_frames.items():
        key = tuple([names[number] for number in stack]) or (UNKNOWN,)
        known = sums.setdefault(key, [0] * len(profiles))
        known[:] = map(add, known, values)
    return sums


def _name(function: str) -> str:
    # Semicolons separate frames. Other writers of this format, too, replace them by colons.
    return printable(function).replace(";", ":") or UNKNOWN


def _lines(stacks: Iterable[tuple[tuple[str, ...], str]]) -> bytes:
    lines = []
    room = MAX_BYTES
    for names, values in stacks:
        room -= sum(map(len, names)) + len(names) + len(values) + 1
        if room < 0:
            raise InvalidProfile(
                f"As folded stacks the profile would be larger than {MAX_BYTES >> 20} MiB: use "
                "another format."
            )
        lines.append(f"{';'.join(names)} {values}\n")
    return "".join(sorted(lines)).encode()
