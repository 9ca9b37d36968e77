"""What exact recording adds beside what traps alone add, in the same run (tests/bench/floor)."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.costresults import FLOOR, Cost, Measured, Results, table
from tests.bench.pairs import Estimate

_OURS = "block"


@dataclass(frozen=True)
class BesideFloor:
    """One workload: ns that a unit takes longer under each, and the ratio of the two.

    The interval of the ratio is as wide as both intervals together make it. None if the floor's own
    interval includes no cost at all.
    """

    title: str
    floor_ns: Estimate
    ours_ns: Estimate
    ratio: Estimate | None


def beside_floor(results: Results) -> list[BesideFloor]:
    """Of all workloads on which both were measured."""
    return [
        BesideFloor(
            measured.title,
            _added_ns(measured, measured.costs[FLOOR]),
            _added_ns(measured, measured.costs[_OURS]),
            _ratio(measured.costs[_OURS].times, measured.costs[FLOOR].times),
        )
        for measured in results.workloads.values()
        if {_OURS, FLOOR} <= set(measured.costs)
    ]


def floor_table(results: Results) -> str:
    """One row a workload."""
    rows = [
        (
            each.title,
            _whole_ns(each.floor_ns),
            _whole_ns(each.ours_ns),
            str(each.ratio) if each.ratio else "the floor is within noise",
        )
        for each in beside_floor(results)
    ]
    return table(("added ns a unit", "floor", results.arms[_OURS], "exact / floor"), rows)


def _added_ns(measured: Measured, cost: Cost) -> Estimate:
    times, bare_ns = cost.times, measured.unit_ns
    return Estimate(*(bare_ns * (each - 1) for each in (times.value, times.low, times.high)))


def _ratio(ours: Estimate, floor: Estimate) -> Estimate | None:
    if floor.low <= 1:
        return None
    return Estimate(
        (ours.value - 1) / (floor.value - 1),
        (ours.low - 1) / (floor.high - 1),
        (ours.high - 1) / (floor.low - 1),
    )


def _whole_ns(estimate: Estimate) -> str:
    return f"{estimate.value:,.0f} [{estimate.low:,.0f}, {estimate.high:,.0f}]"
