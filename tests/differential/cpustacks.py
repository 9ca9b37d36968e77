"""Two CPU profiles side by side: ours and the one Go wrote itself in the same run.

What ours shows more is taken off first: the vDSO and the assembly that calls it, which Go leaves
out (runtime.sigprof starts at m.vdsoPC), and the handlers of signals, in which Go's own signal is
blocked. So is runtime.asyncPreempt as the innermost frame: Go's signal often comes together with
the one that preempts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ebpfprof.profile.model import Location, Mapping, Profile
from symbolizer import ElfFile, GoBinary
from symbolizer.x86.disasm import Instruction, decode

# Go puts these in place of a stack that it could not unwind, or that it leaves out.
UNKNOWN: Final = frozenset(
    {
        "runtime._System",
        "runtime._GC",
        "runtime._VDSO",
        "runtime._ExternalCode",
        "runtime._LostExternalCode",
        "runtime/pprof.lostProfileEvent",
    }
)
CLOCKS: Final = frozenset(
    {"runtime.nanotime1", "runtime.walltime", "runtime.walltime1", "time.now"}
)
# The code that handles a signal, and what it returns to, in Go's runtime or in libc.
SIGNAL_ENTRIES: Final = frozenset(
    {
        "runtime.sigtramp",
        "runtime.cgoSigtramp",
        "runtime.sigreturn",
        "runtime.sigreturn__sigaction",
        "__restore_rt",
    }
)
MARK: Final = "[cut off"
MAX_JUMPS: Final = 3
NOT_LEARNT: Final = "[cut off: not learnt yet]"
# A pair that Go should have so often by its rate, and has not, is not missing by chance: the
# chance is exp(-12), 6 in a million.
LIBC: Final = "[libc.so.6]"  # a function of it that has no name
MISSED_AT_MOST: Final = 12
Pair = tuple[str, str]


@dataclass(frozen=True)
class Stack:
    """One stack, innermost first, as both profiles can show it."""

    locations: tuple[Location, ...]
    count: int
    in_handler: bool = False
    """Whether the handler of a signal was running, which is taken off."""

    @property
    def functions(self) -> list[str]:
        return [frame.function for at in self.locations for frame in at.frames]


def comparable(profile: Profile) -> list[Stack]:
    """The stacks of a profile without what only one of the two can have."""
    stacks = []
    for sample in profile.samples:
        names = [_outermost(location) for location in sample.locations]
        if UNKNOWN.intersection(names):
            continue
        handlers = [index for index, name in enumerate(names) if name in SIGNAL_ENTRIES]
        start = handlers[-1] + 1 if handlers else 0
        while start < len(names) and _is_left_out(sample.locations[start]):
            start += 1
        if start < len(names):
            stacks.append(Stack(sample.locations[start:], sample.values[0], bool(handlers)))
    return stacks


def _is_left_out(location: Location) -> bool:
    name = _outermost(location)
    in_vdso = location.mapping is not None and location.mapping.filename == "[vdso]"
    return in_vdso or name in CLOCKS or name == "runtime.asyncPreempt"


def _outermost(location: Location) -> str:
    return location.frames[-1].function if location.frames else ""


@dataclass(frozen=True)
class Shares:
    """Parts of all samples, from 0 to 1, by function: as the innermost one, and anywhere."""

    flat: dict[str, float]
    cumulative: dict[str, float]

    @classmethod
    def of(cls, stacks: Sequence[Stack]) -> Self:
        flat: Counter[str] = Counter()
        cumulative: Counter[str] = Counter()
        for stack in stacks:
            flat[stack.functions[0]] += stack.count
            cumulative.update(dict.fromkeys(set(stack.functions), stack.count))
        total = sum(stack.count for stack in stacks)
        return cls(
            {function: count / total for function, count in flat.items()},
            {function: count / total for function, count in cumulative.items()},
        )


def share_differences(go: Sequence[Stack], ours: Sequence[Stack], limit: float) -> list[str]:
    """Functions whose shares differ by more than `limit`; empty is equal."""
    theirs, mine = Shares.of(go), Shares.of(ours)
    return [
        f"{what} share of {function}: Go {then.get(function, 0):.4f}, we {now.get(function, 0):.4f}"
        for what, then, now in (
            ("flat", theirs.flat, mine.flat),
            ("cumulative", theirs.cumulative, mine.cumulative),
        )
        for function in then | now
        if abs(then.get(function, 0) - now.get(function, 0)) > limit
    ]


def without_room(profile: Profile) -> int:
    """How many samples the profile says were cut since there was no room to finish them.

    On a machine that stalls there may be none for a sample that the kernel can't unwind yet.
    """
    found = (
        re.match(r"incomplete: (\d+) .*not learnt yet", comment) for comment in profile.comments
    )
    return sum(int(match[1]) for match in found if match)


def leaf_pair(stack: Stack) -> Pair | None:
    """The interrupted function and its caller, or None; inlined calls are no calls."""
    if len(stack.locations) < 2:
        return None
    caller = stack.locations[1].frames
    if not caller or caller[0].function.startswith(MARK):
        return None
    return _outermost(stack.locations[0]), caller[0].function


def strange_pairs(
    go: Sequence[Stack], ours: Sequence[Stack], calls: Calls, *, exact: Collection[str] = ()
) -> list[str]:
    """Innermost pairs of ours that are no calls; empty is right.

    A pair is known if Go's profile has it or if the code has that very call. The others are calls
    through a pointer, which the code does not tell: Go may miss them if they are rare, but for the
    callees in `exact`, which are called directly. What brings a thread of a program with cgo back
    from a signal handler (__restore_rt, which has no symbol) lies on what was interrupted.
    """
    known = {leaf_pair(stack) for stack in go}
    strange: Counter[Pair] = Counter()
    for stack in ours:
        pair = leaf_pair(stack)
        if pair and pair[0] == LIBC:
            continue
        if pair and pair not in known and not calls.prove(stack.locations[0], stack.locations[1]):
            strange[pair] += stack.count
    part = sum(stack.count for stack in go) / sum(stack.count for stack in ours)
    return [
        f"{count}x {callee} < {caller}"
        for (callee, caller), count in strange.items()
        if count * part > MISSED_AT_MOST or callee in exact
    ]


class Calls:
    """Which direct calls the code of a program makes."""

    def __init__(self, program: Path, text: Mapping) -> None:
        """Of a program whose code is mapped as a profile's mapping `text` tells."""
        self._elf = ElfFile.open(program)
        self._binary = GoBinary.open(self._elf)
        segment = next(s for s in self._elf.segments if s.executable)
        self._bias = text.start - text.offset + segment.offset - segment.vaddr
        self._code: dict[int, tuple[Instruction, ...]] = {}

    def prove(self, callee: Location, caller: Location) -> bool:
        """Whether the caller's address lies in a direct call that leads to the callee."""
        return_address = caller.address + 1 - self._bias
        start = self._entry(caller.address - self._bias)
        entry = self._entry(callee.address - self._bias)
        if start is None or entry is None:
            return False
        return any(
            each.is_call and each.target is not None and self._leads(each.target, entry)
            for each in self._decoded(start)
            if each.end == return_address
        )

    def _leads(self, target: int, entry: int) -> bool:
        """Whether a call of `target` gets to the function at `entry`, by jumps at most."""
        targets = {target}
        for _ in range(MAX_JUMPS):
            targets |= {jump for each in targets for jump in self._jumps(each)}
        return entry in targets

    def _jumps(self, entry: int) -> set[int]:
        """The functions that a function jumps to."""
        found = {i.target for i in self._decoded(entry) if i.is_jump and i.target is not None}
        return {target for target in found if target != entry and self._entry(target) == target}

    def _entry(self, address: int) -> int | None:
        function = self._binary.function_at(address)
        return function.entry if function else None

    def _decoded(self, entry: int) -> tuple[Instruction, ...]:
        if entry not in self._code:
            function = self._binary.function_at(entry)
            assert function is not None
            code = self._elf.read(function.entry, function.end - function.entry)
            self._code[entry] = decode(code, function.entry)
        return self._code[entry]

    def close(self) -> None:
        self._elf.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
