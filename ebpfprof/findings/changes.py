"""What changes from one observation of a process to the next: findings that are new, or gone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from ebpfprof.findings.finding import Finding

_ABSENT: Final = 2
"""Observations in a row that lack a finding before it is gone: a share near its threshold is not
above it each time. One that 80 % of the observations have lasts 30 of them on average, not 5."""
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class FindingChange(Generic[_Found]):
    """A finding that is new, is still there, or is gone."""

    kind: Literal["new", "still", "gone"]
    finding: _Found


class FindingChanges(Generic[_Found]):
    """The findings of one process, from one observation to the next.

    A new finding is reported at once, one that is gone after two observations. This works without a
    share, too, and needs nothing of the rules: with a lower threshold for what was found before,
    they would have to report shares that are no findings.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, _Found] = {}
        self._absent: dict[Hashable, int] = {}
        """How many observations in a row have lacked a finding that is known."""

    @property
    def lasting(self) -> Mapping[Hashable, _Found]:
        """The findings that are not gone, by their keys, as they were last found."""
        return self._known

    def add(self, findings: Mapping[Hashable, _Found]) -> list[FindingChange[_Found]]:
        """Add an observation with these findings, by what makes them the same.

        Returns the new ones and those that are still there, in order, then those that are gone. Of
        a finding that only this observation lacks, nothing is said.
        """
        present = [
            FindingChange("still" if key in self._known else "new", finding)
            for key, finding in findings.items()
        ]
        self._absent = {
            key: self._absent.get(key, 0) + 1 for key in self._known if key not in findings
        }
        gone = [key for key, number in self._absent.items() if number >= _ABSENT]
        changes = [*present, *(FindingChange("gone", self._known.pop(key)) for key in gone)]
        for key in gone:
            del self._absent[key]
        self._known |= findings
        return changes


def by_place(findings: Sequence[Finding]) -> dict[Hashable, Finding]:
    """Findings by what makes them the same: kind and place in the code.

    A number tells them apart where several have both.
    """
    seen: Counter[Hashable] = Counter()
    keyed: dict[Hashable, Finding] = {}
    for finding in findings:
        key = (finding.kind, finding.place)
        keyed[(*key, seen[key])] = finding
        seen[key] += 1
    return keyed
