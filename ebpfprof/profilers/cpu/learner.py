"""Unwinds the samples that the kernel could not unwind, and gives it the rules that it lacked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from ebpfprof.kernel import c_facts
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.profilers.cpu.partial_samples import MappedCode, Unfinished
from ebpfprof.profilers.cpu.sample_table import CpuStack
from ebpfprof.profilers.cpu.unwinder import Ending, ProcessRules, RuleNumbers

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.mappings import MappedObjects

MAX_RULES: Final = 1 << 14
MAX_LINES: Final = 1 << 16
"""Each has the rules of 64 bytes of code: together, 4 MB of code."""
_BATCH = 32  # samples to unwind before their rules go to the kernel
_MAX_BATCHES = 128
_MAX_WAITING_BYTES = 16 << 20  # of samples
_TARGET_SHIFT = c_facts.number("common/keys.h", "TARGET_SHIFT")


class UnwoundSamples(Protocol):
    """Takes samples whose stacks were unwound."""

    def add(self, process: int, stack: CpuStack, labels: int, count: int) -> None:
        """Take `count` samples of the target with that number; `labels` as the kernel gave it."""


class Learner:
    """Keeps the unwind rules of all targets, by number, and puts them into the kernel's maps."""

    def __init__(self, program: BpfProgram, table: UnwoundSamples) -> None:
        """`program` is loaded. Unwound samples go to `table`."""
        self._program = program
        self._table = table
        self._unlearned = program.maps["unlearned"].reader()
        self._rules: dict[int, ProcessRules] = {}
        self._objects: dict[int, MappedObjects] = {}
        self._numbers = RuleNumbers(MAX_RULES)
        self._installed_rules = 1
        self._waiting: list[bytes] = []  # samples for the next refresh()
        self.failure: Exception | None = None
        """The error because of which stacks are incomplete; None without one."""

    @property
    def has_waiting(self) -> bool:
        """Whether samples wait for the next refresh()."""
        return bool(self._waiting)

    @property
    def full_targets(self) -> list[int]:
        """The targets that have more rules than fit."""
        return [index for index, rules in self._rules.items() if rules.is_full]

    def open(self, index: int, objects: MappedObjects, go: GoTarget | None) -> None:
        """Add a target."""
        self._objects[index] = objects
        self._rules[index] = ProcessRules(MappedCode(objects, go), self._numbers)

    def forget(self, index: int) -> None:
        """Remove a target, and delete its rules from the kernel's maps."""
        del self._objects[index]
        rules = self._rules.pop(index)
        key_type, _ = self._program.maps["lines"].types
        lines = np.array(sorted(rules.lines), key_type)
        self._program.maps["lines"].delete(lines ^ np.uint64(index << _TARGET_SHIFT))

    def learn(self) -> bool:
        """Unwind new samples and give the kernel their rules; return whether there were any."""
        has_come = False
        # The earlier the kernel has the rules, the fewer samples arrive here.
        for _ in range(_MAX_BATCHES):
            records = self._unlearned.consume(_BATCH)
            has_come |= bool(records)
            for record in records:
                may_wait = sum(map(len, self._waiting)) < _MAX_WAITING_BYTES
                if not self._finish(record, may_wait=may_wait):
                    self._waiting.append(record)
            self.install()
            if len(records) < _BATCH:
                break
        return has_come

    def refresh(self, targets: Collection[int] | None = None) -> None:
        """Read the mappings of targets again, and unwind the samples that wait for that.

        Those of all targets, or of these and of those that have such samples.
        """
        waiting, self._waiting = self._waiting, []
        wanted = {Unfinished.parse(record).process for record in waiting}.union(targets or ())
        for index, objects in list(self._objects.items()):
            if targets is None or index in wanted:
                objects.refresh()
        for record in waiting:
            self._finish(record, may_wait=False)

    def _finish(self, packed: bytes, *, may_wait: bool) -> bool:
        """Unwind a sample to its end; return False if it has unmapped code and may wait.

        Such code may be in a library that the target has loaded since the last refresh().
        """
        sample = Unfinished.parse(packed)
        rules = self._rules.get(sample.process)
        if rules is None:
            return True  # forget() has removed its target meanwhile
        rules.has_met_unmapped = False
        pcs, ending = sample.pcs, Ending.UNLEARNED
        try:
            pcs, ending = sample.finish(rules)
        except Exception as error:  # keep the sample without its callers
            self.failure = self.failure or error
        if may_wait and rules.has_met_unmapped and ending is not Ending.WHOLE:
            return False
        stack = CpuStack(sample.kernel_pcs, pcs, ending)
        self._table.add(sample.process, stack, sample.labels, sample.count)
        return True

    def install(self) -> None:
        """Put new rules into the kernel's maps: first `rules`, since `lines` refer to them."""
        all_rules = self._numbers.rules
        for number in range(self._installed_rules, len(all_rules)):
            rule = all_rules[number]
            fields: Mapping[str, int] = {
                "cfa_offset": rule.cfa_offset,
                "bp_offset": rule.bp_offset or 0,
                "kind": rule.kind.value,
                "exact_caller": int(rule.exact_caller),
            }
            self._program.maps["rules"].set_struct(number, fields)
        self._installed_rules = len(all_rules)
        for index, rules in self._rules.items():
            if not rules.new_lines:
                continue
            key_type, value_type = self._program.maps["lines"].types
            keys = np.array(sorted(rules.new_lines), key_type)
            values = np.zeros(len(keys), value_type)
            lines = b"".join(rules.lines[int(key)] for key in keys)
            values["rules"] = np.frombuffer(lines, "<u2").reshape(len(keys), -1)
            self._program.maps["lines"].update(keys ^ np.uint64(index << _TARGET_SHIFT), values)
            rules.new_lines.clear()
