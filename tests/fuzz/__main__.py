"""Give a great many inputs to the parsers: python -m tests.fuzz --seconds N [--parser NAME]."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.driver import Result, run_apart
from tests.fuzz.parsers import PARSERS


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="for each parser")
    parser.add_argument("--inputs", type=int, help="for each parser")
    parser.add_argument("--parser", action="append", help="only this one; may be repeated")
    parser.add_argument("--run", type=int, default=1, help="another number makes other inputs")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--results", type=Path, help="add them up in this file (JSON)")
    parser.add_argument("--table", action="store_true", help="print the table of that file")
    given = parser.parse_args(arguments)
    if given.table:
        print(table(read(given.results)))
        return 0
    names = given.parser or [each.name for each in PARSERS]
    if unknown := set(names) - {each.name for each in PARSERS}:
        parser.error(f"there is no parser {', '.join(sorted(unknown))}")
    if given.seconds is None and given.inputs is None:
        parser.error("it needs --seconds or --inputs")
    failed = False
    for each in PARSERS:
        if each.name in names:
            seconds, inputs = given.seconds or 1e9, given.inputs or 1 << 62
            result = run_apart(each, given.run, inputs, seconds, given.first)
            print(summary(result), flush=True)
            failed |= bool(result.failures)
            if given.results:
                add(given.results, result)
    return int(failed)


def summary(result: Result) -> str:
    rate = result.inputs / result.cpu_s if result.cpu_s else 0
    lines = [
        f"{result.parser}: {result.inputs} inputs in {result.cpu_s:.1f} s ({rate:.0f}/s), "
        f"slowest {result.slowest_ms:.1f} ms, {len(result.failures)} failures",
        *(f"  {failure}" for failure in result.failures),
    ]
    return "\n".join(lines)


def read(path: Path) -> dict[str, Result]:
    if not path.exists():
        return {}
    return {name: Result(**row) for name, row in json.loads(path.read_text()).items()}


def add(path: Path, result: Result) -> None:
    results = read(path)
    results.setdefault(result.parser, Result(result.parser)).add(result)
    path.write_text(json.dumps({name: asdict(row) for name, row in results.items()}, indent=1))


def table(results: dict[str, Result]) -> str:
    """The results as a table of Markdown."""
    rows = ["| parser | inputs | processor time | slowest input |", "|---|--:|--:|--:|"]
    rows += [
        f"| {each.name} | {found.inputs:,} | {found.cpu_s:,.0f} s | {found.slowest_ms:,.0f} ms |"
        for each in PARSERS
        if (found := results.get(each.name))
    ]
    total = sum(each.inputs for each in results.values())
    return "\n".join([*rows, f"| all | {total:,} | | |"])


if __name__ == "__main__":
    began_s = time.monotonic()
    code = main(sys.argv[1:])
    sys.exit(code)
