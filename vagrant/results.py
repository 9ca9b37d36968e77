"""The last run of each kernel, kept in results.json and shown in docs/kernels.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).parent / "results.json"
DOCUMENT: Final = Path(__file__).parent.parent / "docs" / "kernels.md"
HOST: Final = "host"

_BEGIN: Final = "<!-- Written by vagrant/matrix: begin -->"
_END: Final = "<!-- Written by vagrant/matrix: end -->"
# Go version and build mode, as the names of tests have them.
_VERSION: Final = re.compile(r"(?:^|-)(1\.\d+)(?=-|$)")
_MODES: Final = (
    "plain",
    "stripped",
    "trimpath",
    "debug",
    "pie",
    "cgo",
    "cgopie",
    "pgo",
    "pgopark",
)


class ResultsError(Exception):
    """The file of results or the document is corrupt; the message says which."""


@dataclass(frozen=True)
class Outcome:
    """How one test ended: "passed", "failed" or "skipped"."""

    name: str
    outcome: str

    @property
    def build(self) -> tuple[str, str] | None:
        """Go version and build mode of the test, or None if it names no version.

        Without a mode, it is "plain".
        """
        found = re.search(r"\[(.*)\]$", self.name)
        version = found and _VERSION.search(found[1])
        if not found or not version:
            return None
        modes = [word for word in found[1].split("-") if word in _MODES]
        return version[1], modes[0] if modes else "plain"


@dataclass(frozen=True)
class Run:
    """One kernel's last run; `stopped` is why it ended early, or ""."""

    kernel: str
    release: str
    machine: str
    selection: str
    date: str
    seconds: float
    expected: int
    tests: tuple[Outcome, ...]
    stopped: str = ""

    @property
    def passes(self) -> int:
        """How many tests passed."""
        return sum(test.outcome == "passed" for test in self.tests)

    @property
    def good(self) -> bool:
        """Whether as many tests ran as expected, to the end, and all passed."""
        return self.passes == self.expected == len(self.tests) and not self.stopped


def load(path: Path = FILE) -> dict[str, Run]:
    """The last run of each kernel, in the order of the table. Raises ResultsError."""
    if not path.exists():
        return {}
    try:
        rows = json.loads(path.read_text())
        runs = [_run(row) for row in rows]
    except (ValueError, TypeError, KeyError) as error:
        raise ResultsError(f"{path} is not as vagrant/matrix writes it: {error!r}") from error
    return {run.kernel: run for run in runs}


def save(runs: Mapping[str, Run], order: Sequence[str], path: Path = FILE) -> None:
    """Write the runs, in `order`, others last; of a passed test the name only."""
    rows = []
    for name in sorted(runs, key=lambda name: order.index(name) if name in order else len(order)):
        row: dict[str, Any] = asdict(runs[name])
        tests = runs[name].tests
        row["tests"] = [test.name for test in tests if test.outcome == "passed"]
        row["others"] = {test.name: test.outcome for test in tests if test.outcome != "passed"}
        rows.append(row)
    path.write_text(json.dumps(rows, indent=1) + "\n")


def _run(row: dict[str, Any]) -> Run:
    passed = [Outcome(name, "passed") for name in row.pop("tests")]
    others = [Outcome(name, outcome) for name, outcome in row.pop("others").items()]
    return Run(tests=(*passed, *others), **row)


def write_document(runs: Mapping[str, Run], path: Path = DOCUMENT) -> None:
    """Write the tables into the document, between the two marks. Raises ResultsError."""
    path.write_text(with_tables(path.read_text(), runs))


def with_tables(text: str, runs: Mapping[str, Run]) -> str:
    """The document's text with the tables of these runs. Raises ResultsError without marks."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ResultsError(f"docs/kernels.md has lost its marks {_BEGIN!r} and {_END!r}.")
    return f"{before}{_BEGIN}\n\n{tables(list(runs.values()))}\n{_END}{after}"


def tables(runs: Sequence[Run]) -> str:
    """Passes of each kernel; of each Go version and build mode on each kernel; what failed."""
    if not runs:
        return "Nothing was run yet.\n"
    rows = [
        (
            run.kernel,
            run.release,
            run.machine,
            run.selection,
            f"{run.passes} of {run.expected}" + ("" if run.good else " **(see below)**"),
            _duration(run.seconds),
            run.date,
        )
        for run in runs
    ]
    parts = [_table(("kernel", "release", "machine", "selection", "passes", "took", "date"), rows)]
    builds = sorted(
        {test.build for run in runs for test in run.tests if test.build}, key=_build_order
    )
    cells = [
        (version, mode, *(_cell(run, (version, mode)) for run in runs)) for version, mode in builds
    ]
    parts.append(_table(("Go", "build mode", *(run.kernel for run in runs)), cells))
    bad = [line for run in runs for line in _what_is_wrong(run)]
    parts.append("\n".join(bad) + "\n" if bad else "Nothing failed.\n")
    return "\n".join(parts)


def _cell(run: Run, build: tuple[str, str]) -> str:
    tests = [test for test in run.tests if test.build == build]
    if not tests:
        return ""
    return f"{sum(test.outcome == 'passed' for test in tests)}/{len(tests)}"


def _what_is_wrong(run: Run) -> Iterable[str]:
    if run.stopped:
        yield f"- {run.kernel}: {run.stopped}"
    for test in run.tests:
        if test.outcome != "passed":
            yield f"- {run.kernel}: `{test.name}` {test.outcome}"
    if len(run.tests) != run.expected and not run.stopped:
        yield f"- {run.kernel}: {len(run.tests)} tests ran, {run.expected} were expected"


def _build_order(build: tuple[str, str]) -> tuple[int, int]:
    version, mode = build
    return int(version.split(".")[1]), _MODES.index(mode)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
