"""Turns the CPU samples of one process into its CPU profile, with the names that we find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ebpfprof.console.text import in_one_line
from ebpfprof.kernel.kallsyms import KernelSymbols
from ebpfprof.process.mappings import MappedObjects
from ebpfprof.profilers.cpu.cpu_names import KERNEL, CpuTranslator
from ebpfprof.profilers.cpu.kind import CPU
from ebpfprof.profilers.cpu.sample_table import CpuStack
from ebpfprof.profilers.cpu.unwinder import CUT_TEXTS
from ebpfprof.profilers.labels import chosen
from ebpfprof.profilers.report_builder import ReportBuilder

_CUT: Final = "{{}} samples with a stack cut short: {}"


def report(
    stacks: Mapping[CpuStack, int],
    sampler: str,
    objects: MappedObjects,
    translator: CpuTranslator,
    builder: ReportBuilder,
) -> None:
    """Add the CPU profile: the number of samples of each stack, taken by the event `sampler`."""
    recording, options = builder.recording, builder.options
    in_kernel = any(stack.kernel_pcs for stack in stacks)
    kernel = KernelSymbols.shared() if in_kernel else None
    period_ns = 1_000_000_000 // options["hz"]
    labels = {stack: chosen(stack.labels, options.labels) for stack in stacks}
    samples = translator.samples(stacks, period_ns, labels, kernel)
    if translator.failure:
        builder.fail(translator.failure)
    total = sum(stacks.values())
    builder.note_given_up(CPU.events, translator.given_up, total)
    remarks = [f"sampled by {sampler}"]
    if kernel and kernel.hidden:
        remarks.append(in_one_line(kernel.hidden_text))
        builder.report.hints.append(kernel.hidden_text)
    remarks += [f"names may be missing: {warning}" for warning in objects.warnings]
    cut = Counter[str]()
    for stack, count in stacks.items():
        if stack.ending in CUT_TEXTS:
            cut[_CUT.format(CUT_TEXTS[stack.ending])] += count
    account = replace(builder.account(CPU, f"{CPU.title} profile", remarks), counted=cut)
    profile = CPU.make_profile(
        samples,
        (*objects.mappings, KERNEL) if kernel else objects.mappings,
        period=period_ns,
        time_ns=recording.started_unix_ns,
        duration_ns=account.length_ns,
    )
    builder.add(profile, account)
