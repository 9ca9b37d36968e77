"""Loads the program of allocations, and attaches its probes: at the gates of the memory profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ebpfprof.goruntime.limits import MAX_DEPTH, MAX_LOCK_CALLERS
from ebpfprof.kernel import c_facts
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.program_source import ProgramSource
from ebpfprof.kernel.uprobe_helper import Uprobe
from ebpfprof.profile.losses import Loss
from ebpfprof.profilers.alarms import BudgetAlarms
from ebpfprof.profilers.bounded_probes import BoundedProbes
from ebpfprof.profilers.heap.gate_tables import AllocationTables
from ebpfprof.profilers.heap.kind import HEAP
from ebpfprof.profilers.kernel_losses import losses
from ebpfprof.profilers.target_layout import source_fields, target_fields
from symbolizer.codeanalysis.allocation_gates import MAX_GATES

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from symbolizer.codeanalysis.allocation_gates import AllocationGate

SMALL_BYTES: Final = c_facts.number("heap/allocations.bpf.c", "SMALL_BYTES")
"""The size of the largest objects that share a span."""
_CERTAIN: Final = 1 << 32
_MAX_STACKS: Final = 1 << 15
_BIRTH_PAGES: Final = 1 << 10
_UNFOLLOWED: Final = "births_full"


def source() -> ProgramSource:
    """The program."""
    return ProgramSource(
        "heap/allocations.bpf.c",
        {
            **dict.fromkeys(("WITH_LABELS", "BY_LOCK", "WITH_RUNTIME_LOCKS", "COUNT_SHIFT"), 0),
            **dict.fromkeys(("BY_SIZE", "CROSSES_STACKS", "WITH_ALARM"), 1),
            "MAX_STACKS": 1,
            "MAX_DEPTH": MAX_DEPTH,
            "LOCK_CALLERS": MAX_LOCK_CALLERS,
            "BIRTH_PAGES": _BIRTH_PAGES,
        },
        functions=("on_gate",),
    )


def chance(size_bytes: int, rate_bytes: int) -> float:
    """With which probability an object of that size is sampled.

    On average one in `rate_bytes` bytes is (runtime/pprof/protomem.go, scaleHeapSample); objects
    with a span of their own always are.
    """
    if rate_bytes <= 1 or size_bytes > SMALL_BYTES:
        return 1.0
    return -math.expm1(-size_bytes / rate_bytes)


class _GatedTarget(NamedTuple):
    """A target with its gates. `sweepgen`: see GateProgram.open. `fields`: struct target."""

    go: GoTarget
    gates: Sequence[AllocationGate]
    sweepgen: int | None
    fields: dict[str, Any]

    def probes(self, first: int) -> list[Uprobe]:
        """Its probes; `first` is the number of the first gate among those of all targets."""
        return [
            Uprobe(
                "on_gate",
                self.go.file_offset(gate.pc),
                gate.pc + self.go.load_bias,
                cookie=first + number,
            )
            for number, gate in enumerate(self.gates)
        ]


class GateProgram(BoundedProbes):
    """The BPF program, loaded once, with the probes of any number of targets."""

    def __init__(self, targets: int, rate_bytes: int) -> None:
        """Start to compile for up to `targets` targets. Raises what BpfProgram raises.

        On average, one object in `rate_bytes` bytes is sampled; 1: each.
        """
        self._rate = self._reported_rate = rate_bytes
        self.is_loaded = False
        """Whether load() was called."""
        self._targets: dict[int, _GatedTarget] = {}  # by slot
        self._program = BpfProgram(
            source(), sizes={"MAX_TARGETS": targets, "MAX_SITES": targets * MAX_GATES}
        )
        self.tables = AllocationTables(self._program)

    def load(self) -> None:
        """Make the maps and load the program, if that is not done. Raises as BpfProgram."""
        if self.is_loaded:
            return
        rows = {"stacks": _MAX_STACKS, "totals": _MAX_STACKS}
        self._program.load(rows, grows=frozenset(rows))
        self.alarms = BudgetAlarms(self._program)
        self._set_chances()
        self.is_loaded = True
        for index in self._targets:
            self._describe(index)

    def open(
        self,
        index: int,
        go: GoTarget,
        gates: Sequence[AllocationGate],
        sweepgen: int | None,
    ) -> None:
        """Give a target the number `index`.

        `sweepgen` is the runtime address of runtime.mheap_.sweepgen; None: don't tell objects.
        """
        fields = target_fields(go, has_labels=False)
        self._targets[index] = _GatedTarget(go, tuple(gates), sweepgen, fields)
        if self.is_loaded:
            self._describe(index)

    def attach(self, index: int) -> None:
        """Attach the probes; record() begins to count. Raises AttachFailed and the like."""
        target = self._targets[index]
        go = target.go
        self._program.attach_uprobes(
            go.binary.elf.fd,
            go.target.pid,
            target.probes(index * MAX_GATES),
            anchor=(go.file_offset(go.sites.anchor_pc), go.sites.anchor_pc + go.load_bias),
            group=index,
        )

    def record(self, index: int, *, is_on: bool) -> None:
        """Begin or end to count at attached probes."""
        self._program.maps["targets"].set_struct(
            index, {**self._targets[index].fields, "active": int(is_on)}
        )

    def detach_target(self, index: int, *, for_a_while: bool = False) -> None:
        """Detach the probes of a target; sums stay."""
        if index in self._targets:
            self.record(index, is_on=False)
            self._program.detach_uprobes([index], for_a_while=for_a_while)

    def detach(self) -> None:
        """Detach all probes; sums stay readable."""
        self._program.detach()

    @property
    def reported_rate(self) -> int:
        """On average, births() reports one object in this many bytes."""
        return self._reported_rate

    def report_fewer(self, rate_bytes: int) -> None:
        """Report fewer objects from now on: one in `rate_bytes`, but never more than before."""
        self._reported_rate = max(rate_bytes, self._reported_rate)
        self._set_chances()

    def forget(self, index: int) -> None:
        """Delete all data of a target without attached probes."""
        if self._targets.pop(index, None) is None:
            return
        if self.alarms:
            self.alarms.forget(index)
        if self.is_loaded:
            self.tables.forget(index)

    def losses(self) -> Sequence[Loss]:
        """What it lost so far of each target.

        An object that is not followed was counted all the same: only what is in use lacks it.
        """
        if not self.is_loaded:
            return ()
        lost = losses(self._program.maps["losses"].numbers())
        return [
            replace(loss, kinds=(HEAP.name,)) if loss.name == _UNFOLLOWED else loss for loss in lost
        ]

    def close(self) -> None:
        """Detach the probes and free the maps."""
        if self.alarms:
            self.alarms.close()
        self.is_loaded = False
        self._program.close()

    def _describe(self, index: int) -> None:
        go, gates, sweepgen, _ = self._targets[index]
        bias = go.load_bias
        maps = self._program.maps
        self.record(index, is_on=False)
        maps["heaps"].set_struct(
            index, {"sweepgen": sweepgen or 0, "follows": int(sweepgen is not None)}
        )
        for number, gate in enumerate(gates):
            site = index * MAX_GATES + number
            # One behind the gate, as a return address is one behind its call at least.
            maps["sites"].set_struct(site, {"return_pc": gate.pc + 1 + bias, "target": index})
            maps["gates"].set_struct(
                site, {"object": source_fields(gate.object), "size": source_fields(gate.size)}
            )

    def _set_chances(self) -> None:
        chances = self._program.maps["chances"]
        keys, values = (np.zeros(chances.max_entries, kind) for kind in chances.types)
        keys[:] = np.arange(chances.max_entries)
        for name, rate in (("sampled", self._rate), ("reported", self._reported_rate)):
            values[name] = [round(_CERTAIN * chance(8 * int(eighths), rate)) for eighths in keys]
        chances.update(keys, values)
