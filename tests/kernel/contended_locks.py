"""The locks of the target `heldlocks`, as it reports them, as the table does and as labels do."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from ebpfprof.profile.model import Profile, Sample
from tests.recorder import Finished

BUILDS: Final = (
    ("1.19", "plain"),
    ("1.21", "plain"),
    ("1.23", "plain"),
    ("1.27", "plain"),
    ("1.27", "pie"),
    ("1.27", "stripped"),
    ("1.27", "cgo"),
    ("1.27", "debug"),
)
LOCKS: Final = 9
SCENES: Final = 11
PLACES: Final = 3
LENGTH = r"(?: +(?:\S+ [num]?s|-))"
TITLE = re.compile(r"(?:(?P<name>\S+) \()?(?P<type>\S+) at (?P<address>0x[0-9a-f]+)\)?")
NUMBERS = rf" *\S+ \S+ +(?P<count>\d+) +\S+ \S+{LENGTH}{{0,3}} +"
PLACE = re.compile(
    NUMBERS + r"(?P<verb>released|waited for) by (?P<function>\S+), \w+\.go:\d+: \S+"
)
REST = re.compile(NUMBERS + r"(?P<verb>released|waited for) in (?P<places>\d+) more places?")
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


@dataclass
class Truth:
    """What the target says of one lock; all its scenes together."""

    kind: str = ""
    name: str = ""
    delay_ns: int = 0
    holds: int = 0
    held_ns: int = 0
    releases: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)


@dataclass
class Row:
    """What the table in the terminal says of one lock."""

    kind: str
    name: str
    delay: str
    count: int
    mean: str
    held: str
    places: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    more: Counter[str] = field(default_factory=Counter)


def truths(said: str) -> dict[int, Truth]:
    scenes = json.loads(said)
    assert len(scenes) == SCENES
    locks: dict[int, Truth] = defaultdict(Truth)
    for scene in scenes:
        lock = locks[scene["address"]]
        lock.kind, lock.name = scene["kind"], scene["name"]
        lock.delay_ns += scene["delay_ns"]
        lock.holds += scene["holds"]
        lock.held_ns += scene["held_ns"]
        lock.releases.update(scene["releases"])
        lock.waits.update(scene["waits"])
    assert len(locks) == LOCKS
    return locks


def row_pattern(headings: str) -> re.Pattern[str]:
    """A row of a table with these headings: quantiles are in as many columns as fit."""
    columns = re.split("  +", headings.strip())
    assert columns[:4] == ["Delay", "Share", "Count", "Mean"]
    assert columns[-1] == "Lock"
    at = columns.index("Held")
    return re.compile(
        r" *(?P<delay>\S+ \S+) +(?P<share>\S+%) +(?P<count>\d+) +(?P<mean>\S+ \S+)"
        rf"{LENGTH}{{{at - 4}}} +(?P<held>\S+ \S+|-){LENGTH}{{{len(columns) - at - 2}}}"
        r"  (?P<title>\S.*)"
    )


def table(finished: Finished) -> dict[int, Row]:
    """The rows of the table, by address."""
    _, heading, text = finished.stdout.decode().partition("\nLocks of process ")
    assert heading
    _, headings, *lines = text.partition("\n\n")[0].splitlines()
    pattern = row_pattern(headings)
    rows: dict[int, Row] = {}
    row: Row | None = None
    for line in lines:
        if match := pattern.fullmatch(line):
            title = TITLE.fullmatch(match["title"])
            assert title, line
            row = Row(
                kind=title["type"],
                name=title["name"] or "",
                delay=match["delay"],
                count=int(match["count"]),
                mean=match["mean"],
                held=match["held"],
            )
            assert int(title["address"], 16) not in rows
            rows[int(title["address"], 16)] = row
        elif match := PLACE.fullmatch(line):
            assert row
            row.places[match["verb"]][written(match["function"])] += int(match["count"])
        else:
            match = REST.fullmatch(line)
            assert match, line
            assert row
            row.more[match["verb"]] += int(match["places"])
    return rows


def written(function: str) -> str:
    """The function in the program's text: without inlining, a deferred call has one of its own."""
    return re.sub(r"\.deferwrap\d+$", "", function)


def labels_of(sample: Sample) -> dict[str, str | int]:
    assert len({label.key for label in sample.labels}) == len(sample.labels)
    return {label.key: label.value for label in sample.labels}


def by_address(profile: Profile) -> dict[int, list[Sample]]:
    """Samples with labels, by the address in there."""
    found = defaultdict(list)
    for sample in profile.samples:
        if sample.labels:
            found[int(str(labels_of(sample)["lock_address"]), 16)].append(sample)
    return found


def nanoseconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * UNITS[unit]
