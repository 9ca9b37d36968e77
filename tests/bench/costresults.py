"""What bench.cost found: kept as JSON, shown as tables, held against what was promised."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from tests.bench.pairs import Estimate

FILE: Final = Path(__file__).parent / "cost.json"
EIGHTH_FILE: Final = Path(__file__).parent / "eighth.json"
"""The same of a run of what the tables of one wait in eight need."""

# What was promised. A promise is broken if the interval says so; if what was measured is beyond it
# but the interval is not, that may be noise.
OF_BPFTRACE: Final = 1 / 10
BOUND: Final = 0.02
TOP_TEN: Final = 0.1
BOUNDED: Final = "bounded"  # how the names of those begin that are given a bound
AFFORDED_NS: Final = 1e7  # in a second: 1 % of one CPU
FLOOR: Final = "floor"
"""The name of the arm that has empty BPF programs at the places of our block profile."""


FIELDS_OF_PARTS: Final = {
    "costs": ("workloads",),
    "accuracy": ("accuracy",),
    "growth": ("growth",),
    "bpf": ("bpf",),
    "waits": ("wait_costs", "ways"),
}
"""What each part of a measurement fills of its Results."""


class ResultsError(Exception):
    """The results or the document are not as they were written; the message says which."""


@dataclass(frozen=True)
class Machine:
    """Where and when it was measured; the parts of its processors that others took meanwhile."""

    date: str
    processor: str
    cpus: int
    kernel: str
    go: str
    niced: float
    stolen: float


@dataclass(frozen=True)
class Cost:
    """One profiler on one workload: times bare, and the median of its rounds, in ns a unit.

    `own` is what its own processes used meanwhile, of one processor's time; 0 if it is not ours.
    """

    times: Estimate
    unit_ns: float
    rounds: int
    own: float = 0.0


@dataclass(frozen=True)
class Accuracy:
    """The top stacks by delay beside Go's own of the same run: how many there were, of what part of
    all delay, the largest difference of one of them and that of all delays, as parts of Go's; and
    the largest standard error that the profile itself reports for its top stacks. `counts` is the
    largest difference of a count of these stacks."""

    stacks: int
    share: float
    largest: float
    whole: float
    error: float = 0.0
    counts: float = 0.0


@dataclass(frozen=True)
class Measured:
    """All of one workload. `unit_ns` and its quartiles are of rounds without a profiler."""

    title: str
    unit: str
    unit_ns: float
    low_ns: float
    high_ns: float
    costs: dict[str, Cost]


@dataclass(frozen=True)
class Curve:
    """How the cost of an event, in ns, grows with something: (how much of it, cost)."""

    title: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class BpfRun:
    """What the kernel says that a program takes a run, in ns, with stacks of that many frames."""

    program: str
    sampling: str
    frames: int
    ns: float


@dataclass(frozen=True)
class WaitCost:
    """What a recorded wait adds to the CPU time of a workload, in ns.

    By the clock of that time, and as ebpfprof reports it. Of one in eight, seven of eight waits add
    nothing.
    """

    workload: str
    recorder: str
    ns: float
    reported_ns: float


@dataclass(frozen=True)
class Ways:
    """How waits were recorded within a limit of 1 %, at that many waits per second of one CPU.

    `every`, `eighth` and `windowed` are parts of the time, `overhead` of the process's CPU time.
    """

    rate: float
    every: float
    eighth: float
    windowed: float
    windows: int
    overhead: float


@dataclass(frozen=True)
class Results:
    """One run of the command. `arms` are the titles of profilers by name, in order; of `accuracy`
    the keys are titles of workloads and names of arms."""

    machine: Machine
    arms: dict[str, str]
    workloads: dict[str, Measured] = field(default_factory=dict)
    accuracy: dict[str, dict[str, Accuracy]] = field(default_factory=dict)
    growth: tuple[Curve, ...] = ()
    bpf: tuple[BpfRun, ...] = ()
    wait_costs: tuple[WaitCost, ...] = ()
    ways: tuple[Ways, ...] = ()
    later: dict[str, str] = field(default_factory=dict)
    """The dates of parts that were measured after the others."""

    def with_parts(self, measured: Results, parts: Sequence[str]) -> Results:
        """These results, with some parts as they were `measured` later."""
        fields = {name: getattr(measured, name) for part in parts for name in FIELDS_OF_PARTS[part]}
        later = self.later | dict.fromkeys(parts, measured.machine.date)
        return replace(self, **fields, later=later)

    def save(self, path: Path = FILE) -> None:
        """Write them as JSON."""
        path.write_text(json.dumps(_rounded(asdict(self)), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path = FILE) -> Self:
        """Read them again. Raises ResultsError."""
        try:
            return cls._from(json.loads(path.read_text()))
        except (ValueError, TypeError, KeyError) as error:
            raise ResultsError(f"{path} is not as tests.bench.cost writes it: {error!r}") from error

    @classmethod
    def _from(cls, row: dict[str, Any]) -> Self:
        return cls(
            Machine(**row["machine"]),
            row["arms"],
            {name: _measured(each) for name, each in row["workloads"].items()},
            {
                title: {arm: Accuracy(**each) for arm, each in by_arm.items()}
                for title, by_arm in row["accuracy"].items()
            },
            tuple(
                Curve(each["title"], tuple((x, y) for x, y in each["points"]))
                for each in row["growth"]
            ),
            tuple(BpfRun(**each) for each in row["bpf"]),
            tuple(WaitCost(**each) for each in row["wait_costs"]),
            tuple(Ways(**each) for each in row["ways"]),
            dict(row.get("later", {})),
        )


def _measured(row: dict[str, Any]) -> Measured:
    costs = {
        name: Cost(Estimate(**cost.pop("times")), **cost) for name, cost in row.pop("costs").items()
    }
    return Measured(**row, costs=costs)


def _rounded(value: Any) -> Any:  # noqa: ANN401 (JSON)
    """Floats as short as they are sure."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


def cost_table(results: Results) -> str:
    """One row a profiler, one column a workload: times bare, and where 95 of 100 runs come out."""
    measured = results.workloads.values()
    rows = [
        ("bare: ns a unit [quartiles]", *(f"**{_ns(m)}**" for m in measured)),
        *(
            (title, *(str(m.costs[arm].times) if arm in m.costs else "" for m in measured))
            for arm, title in results.arms.items()
            if any(arm in m.costs for m in measured)
        ),
    ]
    return table(("times bare", *(m.title for m in measured)), rows)


def own_table(results: Results) -> str:
    """One row a profiler of ours, one column a workload: the part of a processor that it took."""
    measured = results.workloads.values()
    rows = [
        (title, *(f"{m.costs[arm].own:.1%}" if arm in m.costs else "" for m in measured))
        for arm, title in results.arms.items()
        if any(arm in m.costs and m.costs[arm].own for m in measured)
    ]
    return table(("of one processor", *(m.title for m in measured)), rows)


def _ns(measured: Measured) -> str:
    return f"{measured.unit_ns:,.0f} [{measured.low_ns:,.0f}, {measured.high_ns:,.0f}]"


def accuracy_table(results: Results) -> str:
    """One row a workload; of each profiler the largest difference of the top ten stacks."""
    arms = [arm for arm in results.arms if any(arm in by for by in results.accuracy.values())]
    header = ["", "stacks", "of all delay"]
    for arm in arms:
        header += [f"{results.arms[arm]}: largest difference", "of all delays", "of a count"]
        if arm.startswith(BOUNDED):
            header.append("standard error of the top ten, at most")
    rows = []
    for title, by_arm in results.accuracy.items():
        first = next(iter(by_arm.values()))
        row = [title, str(first.stacks), f"{first.share:.1%}"]
        for arm in arms:
            found = by_arm[arm]
            row += [f"{found.largest:.2%}", f"{found.whole:+.2%}", f"{found.counts:.2%}"]
            if arm.startswith(BOUNDED):
                row.append(f"{by_arm[arm].error:.1%}")
        rows.append(row)
    return table(header, rows)


def growth_table(curve: Curve) -> str:
    """One column a point."""
    header = (curve.title, *(f"{x:,.0f}" for x, _ in curve.points))
    return table(header, [("ns an event", *(f"{y:,.0f}" for _, y in curve.points))])


def bpf_table(runs: Sequence[BpfRun]) -> str:
    """One row a program, one column a depth."""
    depths = sorted({run.frames for run in runs})
    by_cell = {(run.program, run.sampling, run.frames): run.ns for run in runs}
    rows = [
        (
            f"`{program}`" if program.isidentifier() else program,
            sampling,
            *(
                f"{by_cell[program, sampling, n]:,.0f}" if (program, sampling, n) in by_cell else ""
                for n in depths
            ),
        )
        for program, sampling in dict.fromkeys((run.program, run.sampling) for run in runs)
    ]
    return table(("ns a run", "events", *(f"{n} frames" for n in depths)), rows)


def wait_cost_table(costs: Sequence[WaitCost]) -> str:
    """One row a workload; of each recorder the cost of a wait, and how many a second 1 % is."""
    recorders = list(dict.fromkeys(cost.recorder for cost in costs))
    header = ["1 % of a CPU"]
    for recorder in recorders:
        header += [f"{recorder}: ns a wait", "reported", "waits a second"]
    rows = []
    for workload in dict.fromkeys(cost.workload for cost in costs):
        row = [workload]
        for recorder in recorders:
            (found,) = (c for c in costs if (c.workload, c.recorder) == (workload, recorder))
            # Within noise, there is no upper bound.
            affordable = f"{AFFORDED_NS / found.ns:,.0f}" if found.ns > 0 else ""
            row += [f"{found.ns:,.0f}", f"{found.reported_ns:,.0f}", affordable]
        rows.append(row)
    return table(header, rows)


def ways_table(ways: Sequence[Ways]) -> str:
    """One row a rate of waits."""
    header = ("waits a second", "every wait", "one in eight", "in windows", "windows", "overhead")
    return table(
        header,
        [
            (
                f"{found.rate:,.0f}",
                *(
                    f"{part:.0%} of the time"
                    for part in (found.every, found.eighth, found.windowed)
                ),
                str(found.windows),
                f"{found.overhead:.2%}",
            )
            for found in ways
        ],
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


@dataclass(frozen=True)
class Verdict:
    """Something that was promised and what was measured, all in all and at the good end of the
    interval: whether either is as promised."""

    promise: str
    is_kept: bool
    may_be_kept: bool
    found: str

    @property
    def text(self) -> str:
        """In words."""
        if self.is_kept:
            return "kept"
        return "not shown: within noise" if self.may_be_kept else "**not kept**"


def verdicts(results: Results) -> list[Verdict]:
    """Of all promises that were measured."""
    found = [*_beside_bpftrace(results), *_bounded(results), *_on_the_server(results)]
    for title, by_arm in results.accuracy.items():
        for arm, each in by_arm.items():
            if arm.startswith(BOUNDED):
                promise = f"{title}: top ten stacks within {TOP_TEN:.0%}, {results.arms[arm]}"
                is_kept = each.largest <= TOP_TEN
                # As far off as 95 of 100 recordings are by chance.
                may_be_kept = each.largest <= TOP_TEN + 2 * each.error
                text = f"{each.largest:.1%}, standard error {each.error:.1%}"
                found.append(Verdict(promise, is_kept, may_be_kept, text))
    return found


def _beside_bpftrace(results: Results) -> list[Verdict]:
    costs = results.workloads["pingpong"].costs if "pingpong" in results.workloads else {}
    if not {"block", "bpftrace-block"} <= set(costs):
        return []
    ours, theirs = costs["block"].times, costs["bpftrace-block"].times
    ratio = (ours.value - 1) / (theirs.value - 1)
    promise = "ping-pong: exact block recording adds at most 1/10 of what bpftrace adds"
    surely = (ours.low - 1) / (theirs.high - 1)
    return [Verdict(promise, ratio <= OF_BPFTRACE, surely <= OF_BPFTRACE, f"1/{1 / ratio:.1f}")]


def _bounded(results: Results) -> list[Verdict]:
    return [
        Verdict(
            f"{measured.title}: at most {BOUND:.0%} slower, {results.arms[arm]}",
            cost.times.value <= 1 + BOUND,
            cost.times.low <= 1 + BOUND,
            str(cost.times),
        )
        for measured in results.workloads.values()
        for arm, cost in measured.costs.items()
        if arm.startswith(BOUNDED)
    ]


def _on_the_server(results: Results) -> list[Verdict]:
    costs = results.workloads["http"].costs if "http" in results.workloads else {}
    if not {"block", "go-block-10000-cpu"} <= set(costs):
        return []
    ours, theirs = costs["block"].times, costs["go-block-10000-cpu"].times
    promise = "HTTP server: the exact profile costs less than Go's own at rate 10,000 and CPU"
    found = f"{ours} against {theirs}"
    return [Verdict(promise, ours.value <= theirs.value, ours.low <= theirs.high, found)]


def verdict_table(results: Results) -> str:
    """What was promised, and what was measured."""
    rows = [(v.promise, v.text, v.found) for v in verdicts(results)]
    return table(("promise", "", "measured"), rows)
