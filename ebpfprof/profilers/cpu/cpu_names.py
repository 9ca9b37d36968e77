"""Turns CPU stacks of addresses into stacks with names of Go, native and kernel functions.

Go frames appear as in Go's own CPU profile: a location holds its inlined calls, and wrappers and
goexit are left out (runtime/traceback.go, tracebackPCs; runtime/pprof/proto.go).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import printable
from ebpfprof.profile.model import Frame, Label, Location, Sample
from ebpfprof.profile.model import Mapping as MappedRange
from ebpfprof.profilers.cpu.sample_table import CpuStack
from ebpfprof.profilers.cpu.unwinder import Ending
from symbolizer import Frame as CodeFrame
from symbolizer import FuncRole
from symbolizer.errors import TooMuchToRead

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.kernel.kallsyms import KernelSymbols
    from ebpfprof.process.mappings import MappedObject, MappedObjects

_Frames = Mapping[int, tuple[CodeFrame, ...]]
"""By linked address."""

_ADDRESS_END: Final = 1 << 64
_GO_END: Final = "runtime.goexit"
_FORGET_AFTER_S: Final = 60.0
KERNEL: Final = MappedRange(0xFFFF_8000_0000_0000, _ADDRESS_END - 1, 0, "[kernel.kallsyms]", "")

# The root of an incomplete stack.
_MARKS = {
    Ending.TOO_DEEP: "[cut off: 128 frames]",
    Ending.UNLEARNED: "[cut off: not learnt yet]",
    Ending.NO_RULE: "[cut off: caller unknown]",
    Ending.UNREADABLE: "[cut off: unreadable]",
    Ending.ASTRAY: "[cut off: caller not found]",
}


@dataclass(frozen=True, slots=True)
class _Physical:
    """An address of a stack with its logical frames, innermost first.

    `is_given_up`: names or lines are missing because finding them would take too much.
    """

    address: int
    mapping: MappedRange | None
    frames: tuple[CodeFrame, ...]
    is_given_up: bool = False


class CpuTranslator:
    """Turns the stacks of one target into locations. Looks up each address once."""

    def __init__(
        self,
        objects: MappedObjects,
        go: GoTarget | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`go` is None if the target is no Go program. `clock` returns seconds."""
        self._objects = objects
        self._go = go
        self._clock = clock
        self._stacks: dict[CpuStack, tuple[Location, ...]] = {}
        self._physical: dict[int, _Physical] = {}
        self._locations: dict[tuple[int, tuple[Frame, ...]], Location] = {}
        self._forgot_s = self._clock()
        self.failure: Exception | None = None
        """The error because of which names are missing: a corrupt table, or a bug."""
        self.given_up = 0
        """How many of the last samples lack names because finding them would take too much."""

    def samples(
        self,
        stacks: Mapping[CpuStack, int],
        period_ns: int,
        labels: Mapping[CpuStack, tuple[Label, ...]],
        kernel: KernelSymbols | None,
    ) -> list[Sample]:
        """Samples with (count, nanoseconds), added up by the resulting stack and by labels.

        `kernel` has the names of kernel functions; without it they are all "[kernel]".
        """
        new = [stack for stack in stacks if stack not in self._stacks]
        self._look_up({pc - 1 for stack in new for pc in stack.pcs} - self._physical.keys())
        # Keep only the stacks of this call: in a long recording there would be too many.
        known = self._stacks
        self._stacks = {stack: known.get(stack) or self._stack(stack, kernel) for stack in stacks}
        if self._clock() - self._forgot_s >= _FORGET_AFTER_S:
            self._forget_others(stacks)
        sums: Counter[tuple[tuple[Location, ...], tuple[Label, ...]]] = Counter()
        self.given_up = 0
        for stack, count in stacks.items():
            sums[self._stacks[stack], labels[stack]] += count
            if any(self._physical[pc - 1].is_given_up for pc in stack.pcs):
                self.given_up += count
        return [
            Sample(locations, (count, count * period_ns), own_labels)
            for (locations, own_labels), count in sums.items()
        ]

    def _forget_others(self, stacks: Iterable[CpuStack]) -> None:
        """Keep only the addresses and locations of these stacks: each takes about 1 KB."""
        self._forgot_s = self._clock()
        needed = {pc - 1 for stack in stacks for pc in stack.pcs}
        self._physical = {address: self._physical[address] for address in needed}
        used = {id(location) for locations in self._stacks.values() for location in locations}
        self._locations = {
            key: location for key, location in self._locations.items() if id(location) in used
        }

    def _stack(self, stack: CpuStack, kernel: KernelSymbols | None) -> tuple[Location, ...]:
        locations = [
            self._kernel_location(pc - (1 if index else 0), kernel)
            for index, pc in enumerate(stack.kernel_pcs)
        ]
        logical = [
            (index, frame, physical)
            for index, physical in enumerate(self._physical[pc - 1] for pc in stack.pcs)
            for frame in physical.frames or (None,)
        ]
        callee = FuncRole.NORMAL
        kept = []
        for index, frame, physical in logical:
            role = frame.role if frame else FuncRole.NORMAL
            if not (role is FuncRole.WRAPPER and callee.elides_wrapper):
                kept.append((index, frame, physical))
            callee = role
        for _, group in groupby(kept, key=lambda row: row[0]):
            members = list(group)
            frames = [frame for _, frame, _ in members if frame]
            if not frames or frames[-1].function != _GO_END:
                locations.append(self._location(members[0][2], frames))
        if not locations and logical:  # a goroutine that starts or ends: keep its only frame
            _, frame, physical = logical[0]
            locations.append(self._location(physical, [frame] if frame else []))
        mark = _MARKS.get(stack.ending)
        if mark:
            locations.append(self._known(1, None, (Frame(mark, "", 0),)))
        return tuple(locations)

    def _location(self, physical: _Physical, frames: Sequence[CodeFrame]) -> Location:
        # If Go leaves out a part of a physical frame, it uses the address of the rest.
        address = physical.address
        if frames and len(frames) < len(physical.frames) and self._go:
            address = frames[0].pc + self._go.load_bias
        shown = tuple(Frame(f.function, f.file, f.line, f.start_line) for f in frames)
        if not shown:
            shown = (Frame(_unnamed(physical), "", 0),)
        return self._known(address, physical.mapping, shown)

    def _kernel_location(self, address: int, kernel: KernelSymbols | None) -> Location:
        symbol = kernel.at(address) if kernel else None
        name = symbol.name if symbol else "[kernel]"
        if symbol and symbol.module:
            name = f"{name} [{symbol.module}]"
        mapping = KERNEL if KERNEL.start <= address < KERNEL.limit else None
        return self._known(address, mapping, (Frame(name, "", 0),))

    def _known(
        self, address: int, mapping: MappedRange | None, frames: tuple[Frame, ...]
    ) -> Location:
        key = (address, frames)
        location = self._locations.get(key)
        if location is None:
            location = self._locations[key] = Location(max(address, 1), mapping, frames)
        return location

    def _look_up(self, addresses: Iterable[int]) -> None:
        """Find the frames of all addresses, file by file."""
        of_go: list[int] = []
        of_objects: dict[int, list[int]] = {}
        mapped = {}
        for address in addresses:
            if self._go and self._is_go(address):
                of_go.append(address)
                continue
            mapped_object = self._objects.at(address)
            if mapped_object is None:
                self._physical[address] = _Physical(address, None, ())
            else:
                mapped[id(mapped_object)] = mapped_object
                of_objects.setdefault(id(mapped_object), []).append(address)
        if self._go:
            self._look_up_go(self._go, of_go)
        for key, members in of_objects.items():
            mapped_object = mapped[key]

            self._keep(
                members,
                mapped_object.bias,
                partial(_native_frames, mapped_object),
                mapped_object.mapping,
            )

    def _look_up_go(self, go: GoTarget, addresses: Sequence[int]) -> None:
        self._keep(addresses, go.load_bias, lambda linked: (go.binary.frames_many(linked), False))

    def _keep(
        self,
        addresses: Sequence[int],
        bias: int,
        ask: Callable[[Sequence[int]], tuple[_Frames, bool]],
        mapping: MappedRange | None = None,
    ) -> None:
        """Look up the frames of these addresses, and keep them. Errors leave them without names.

        `ask` returns the frames of linked addresses, and whether it gave up names or lines.
        `mapping` is the mapping of all addresses if they share one.
        """
        frames: _Frames = {}
        is_given_up = False
        try:
            frames, is_given_up = ask([address - bias for address in addresses])
        except TooMuchToRead:
            is_given_up = True
        except Exception as error:  # any error: keep the samples without names
            self.failure = self.failure or error
        for address in addresses:
            inlined = frames.get(address - bias, ())
            own = mapping or self._mapping_at(address)
            self._physical[address] = _Physical(address, own, inlined, is_given_up)

    def _mapping_at(self, address: int) -> MappedRange | None:
        mapped = self._objects.at(address)
        return mapped.mapping if mapped else None

    def _is_go(self, address: int) -> bool:
        go = self._go
        return go is not None and (
            go.binary.text_start <= address - go.load_bias < go.binary.text_end
        )


def _native_frames(mapped_object: MappedObject, linked: Sequence[int]) -> tuple[_Frames, bool]:
    native = mapped_object.native()
    return (native.frames_many(linked), native.gave_up) if native else ({}, False)


def _unnamed(physical: _Physical) -> str:
    """The text for an address without a name: the file or the area that it is in."""
    mapping = physical.mapping
    if mapping is None:
        return "[unmapped]"
    name = mapping.filename.rsplit("/", 1)[-1] or "[anonymous]"
    return printable(name) if name.startswith("[") else f"[{printable(name)}]"
