"""What bench.cost found, in docs/performance.md, docs/costs.md and the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.bench import charts
from tests.bench.costfloor import beside_floor, floor_table
from tests.bench.costresults import (
    Results,
    ResultsError,
    accuracy_table,
    bpf_table,
    cost_table,
    growth_table,
    own_table,
    verdict_table,
    verdicts,
    wait_cost_table,
    ways_table,
)

DOCS: Final = Path(__file__).parents[2] / "docs"
DOCUMENT: Final = DOCS / "performance.md"
SHORT_DOCUMENT: Final = DOCS / "costs.md"
"""Has the rows and columns that most readers want."""
COSTS_PICTURE: Final = DOCS / "images" / "cost.svg"
GROWTH_PICTURE: Final = DOCS / "images" / "cost-growth.svg"

_SHORT_ARMS: Final = ("go-block-1", "block", "block-mutex", "bounded-all", "bpftrace-block")
EIGHTH_ARMS: Final = (
    *("go-block-1", "eighth", "eighth-mutex", "block", "block-mutex", "bpftrace-block"),
)
"""The rows of the table of one wait in eight."""
_SHORT_WORKLOADS: Final = ("pingpong", "mutex", "pool", "http")
_COLOURS: Final = {
    "Go's": "#57ab5a",
    "ebpfprof": "#0969da",
    "bpftrace": "#cf222e",
    "perf": "#bf8700",
    "empty": "#8b949e",
}


def tables(results: Results) -> dict[str, str]:
    """The tables of what was measured, by the name that their place in the document has."""
    found = {"machine": machine_line(results)}
    if results.workloads:
        found["costs"] = cost_table(results)
        found["own"] = own_table(results)
    if beside_floor(results):
        found["floor"] = floor_table(results)
    if results.accuracy:
        found["accuracy"] = accuracy_table(results)
    if results.growth:
        found["growth"] = "\n".join(growth_table(curve) for curve in results.growth)
    if results.bpf:
        found["bpf"] = bpf_table(results.bpf)
    if verdicts(results):
        found["promises"] = verdict_table(results)
    return found


def short_tables(results: Results) -> dict[str, str]:
    """The tables of the short document, by name: none if nothing of theirs was measured."""
    short = replace(
        _with_arms(results, _SHORT_ARMS),
        workloads={
            name: measured
            for name, measured in results.workloads.items()
            if name in _SHORT_WORKLOADS
        },
    )
    if not short.workloads:
        return {}
    return {"machine": machine_line(results), "short": cost_table(short)}


def eighth_tables(results: Results) -> dict[str, str]:
    """The tables of one wait in eight, by the names of their places in the document."""
    found = {}
    if any("eighth" in measured.costs for measured in results.workloads.values()):
        found["eighth"] = cost_table(_with_arms(results, EIGHTH_ARMS))
    if results.wait_costs:
        found["wait costs"] = wait_cost_table(results.wait_costs)
    if results.ways:
        found["ways"] = ways_table(results.ways)
    if found:
        found["eighth, machine"] = machine_line(results)
    return found


def _with_arms(results: Results, names: Sequence[str]) -> Results:
    """The results of these arms, in that order."""
    return replace(
        results, arms={name: results.arms[name] for name in names if name in results.arms}
    )


def machine_line(results: Results) -> str:
    """The machine of the measurement, and its other load."""
    at = results.machine
    rounds = sorted({c.rounds for m in results.workloads.values() for c in m.costs.values()})
    return (
        f"{at.date}, {at.processor}, {at.cpus} CPUs, Linux {at.kernel}, Go {at.go}; "
        f"{' or '.join(map(str, rounds)) or 'no'} rounds each. "
        f"Programs of low priority took {at.niced:.0%} of "
        f"the processors meanwhile, other guests of the machine {at.stolen:.0%}."
        + "".join(f" Measured again: {part}, {date}." for part, date in results.later.items())
        + "\n"
    )


def as_text(results: Results) -> str:
    """All tables, for the terminal."""
    found = {**eighth_tables(results), **tables(results)}
    if "costs" in found:
        found.pop("eighth", None)  # which has rows of that table
    return "\n".join(found.values())


def write_eighth(results: Results) -> None:
    """Put the tables of one wait in eight into their document. Raises ResultsError."""
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(), eighth_tables(results)))


def write_docs(results: Results) -> None:
    """Put all tables into the documents, and draw the pictures. Raises ResultsError."""
    for document, found in ((DOCUMENT, tables(results)), (SHORT_DOCUMENT, short_tables(results))):
        document.write_text(with_tables(document.read_text(), found))
    write_eighth(results)
    if results.workloads:
        COSTS_PICTURE.write_text(picture_of_costs(results))
    if results.growth:
        GROWTH_PICTURE.write_text(picture_of_growth(results))


def with_tables(text: str, found: dict[str, str]) -> str:
    """A document's text with these tables between their marks. Raises ResultsError."""
    for name, table in found.items():
        begin, end = (f"<!-- tests.bench.cost, {name}: {which} -->" for which in ("begin", "end"))
        before, opened, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not opened or not closed:
            raise ResultsError(f"The document has lost its marks {begin!r} and {end!r}.")
        text = f"{before}{begin}\n\n{table}\n{end}{after}"
    return text


def picture_of_costs(results: Results) -> str:
    """A panel a workload, a bar a profiler."""
    panels = []
    for measured in results.workloads.values():
        bars = []
        for arm, title in results.arms.items():
            if arm in measured.costs:
                times = measured.costs[arm].times
                colour = next(c for who, c in _COLOURS.items() if title.startswith(who))
                text = f"{times.value:,.3g}"
                bars.append(charts.Bar(title, colour, times.value, times.low, times.high, text))
        title = f"{measured.title}: {measured.unit}, {measured.unit_ns:,.0f} ns bare"
        panels.append(charts.Panel(title, tuple(bars)))
    return charts.bars("Times as long as without a profiler", panels)


def picture_of_growth(results: Results) -> str:
    """A panel a curve."""
    lines = [charts.Line(curve.title, curve.points) for curve in results.growth]
    return charts.curves("What a block event costs, in ns of processor time", lines)
