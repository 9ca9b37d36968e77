"""The registry of rules: each looks for one kind of cause, or a few that belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.findings import (
    background_disk,
    build,
    calls,
    collections,
    consumers,
    cpu_quota,
    hot_function,
    leaks,
    locked_threads,
    locks,
    memory_growth,
    memory_limit,
    neighbours,
    network,
    pools,
    processors,
    spinning,
    stuck,
    timers,
)

if TYPE_CHECKING:
    from ebpfprof.findings.evidence import Evidence
    from ebpfprof.findings.finding import Finding


class FindingRule(NamedTuple):
    """A rule: what it finds in the evidence, and what it says where it finds nothing.

    `fine` returns a few words for the line of what was checked ("garbage collection 2 %"), or ""
    if it could check nothing.
    """

    find: Callable[[Evidence], Iterator[Finding]]
    fine: Callable[[Evidence], str]


RULES: Final = (
    FindingRule(stuck.find, stuck.fine),
    FindingRule(leaks.find, leaks.fine),
    FindingRule(locks.find, locks.fine),
    FindingRule(pools.find, pools.fine),
    FindingRule(consumers.find, consumers.fine),
    FindingRule(network.find, network.fine),
    FindingRule(calls.find, calls.fine),
    FindingRule(background_disk.find, background_disk.fine),
    FindingRule(locked_threads.find, locked_threads.fine),
    FindingRule(processors.find, processors.fine),
    FindingRule(cpu_quota.find, cpu_quota.fine),
    FindingRule(neighbours.find, neighbours.fine),
    FindingRule(collections.find, collections.fine),
    FindingRule(memory_growth.find, memory_growth.fine),
    FindingRule(memory_limit.find, memory_limit.fine),
    FindingRule(spinning.find, spinning.fine),
    FindingRule(timers.find, timers.fine),
    FindingRule(hot_function.find, hot_function.fine),
    FindingRule(build.find, build.fine),
)
"""In the order of the line of what was checked."""

_CAUSES: Final[dict[str, frozenset[str]]] = {
    "deadlock": frozenset(
        {"hang", "hot_lock", "convoy", "slow_consumer", "slow_producer", "goroutine_leak"}
    ),
    "lost_wake": frozenset({"hang", "hot_lock", "goroutine_leak"}),
    "hang": frozenset({"hot_lock", "convoy", "slow_consumer", "goroutine_leak", "memory_growth"}),
    "goroutine_leak": frozenset({"memory_growth"}),
    "hot_function": frozenset({"few_processors"}),
}
"""Kinds of findings, and those that follow from them if both are about the same: the same line,
lock or channel, or most of the CPU time. These are not reported beside them."""
_CAUSES_OF_ALL: Final[dict[str, frozenset[str]]] = {
    "spinning": frozenset({"few_processors"}),
    "timers": frozenset({"few_processors"}),
    "collections": frozenset({"few_processors"}),
    "forced_collections": frozenset({"few_processors"}),
    "heap_limit": frozenset({"few_processors"}),
    "neighbours": frozenset({"few_processors"}),
    "throttling": frozenset({"few_processors", "neighbours"}),
    "gomaxprocs": frozenset({"few_processors", "neighbours"}),
}
"""The same of kinds that are about the whole process."""


class Explanation(NamedTuple):
    """What is wrong with a process, the worst first, and what was checked without a finding."""

    findings: tuple[Finding, ...]
    fine: tuple[str, ...]


def explained(evidence: Evidence) -> Explanation:
    """Apply all rules to what was observed."""
    findings: list[Finding] = []
    fine: list[str] = []
    for rule in RULES:
        of_rule = list(rule.find(evidence))
        findings += of_rule
        words = "" if of_rule else rule.fine(evidence)
        fine += [words] if words else []
    return Explanation(tuple(ranked(findings)), tuple(fine))


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, the worst first, without those that follow from others."""
    given = list(findings)
    kept = [finding for finding in given if not any(_follows(finding, cause) for cause in given)]
    return sorted(kept, key=lambda finding: finding.rank, reverse=True)


def _follows(finding: Finding, cause: Finding) -> bool:
    if finding.kind in _CAUSES_OF_ALL.get(cause.kind, ()):
        return True
    return finding.kind in _CAUSES.get(cause.kind, ()) and not finding.about.isdisjoint(cause.about)
