"""`ebpfprof history` shows what was found wrong with processes in the time in question."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.ring.writer import Ring
from tests.unit.commands.test_history import _now, ask  # noqa: F401 - the fixture sets the clock
from tests.unit.ring.made_up import API, NS, START_S, WINDOW_S, Clock, profile_of, ring, window
from tests.unit.ring.test_findings import HOT, findings

LEAK = replace(
    HOT, kind="goroutine_leak", subject="x", title="Leak: \x1b[31m12 goroutines.", place=""
)


@pytest.fixture
def writer(tmp_path: Path) -> Ring:
    """A ring with ten minutes of shop and api."""
    clock = Clock()
    made = ring(tmp_path / "ring", clock)
    for minute in range(10):
        at_s = START_S + minute * WINDOW_S
        clock.now_s = at_s + WINDOW_S
        assert made.write(window(at_s, [profile_of(3, NS, at_s)]))
        assert made.write(window(at_s, [profile_of(1, NS, at_s)], identity=API, pid=7))
    return made


def ended(writer: Ring, tmp_path: Path) -> Path:
    writer.close()
    return tmp_path / "ring"


def test_the_list_has_the_findings_of_the_time(writer: Ring, tmp_path: Path) -> None:
    writer.note_findings(findings(START_S + 310, replace(HOT, since_s=START_S - 60)))
    writer.note_findings(findings(START_S + 180, replace(LEAK, since_s=START_S + 180), pid=7))
    folder = ended(writer, tmp_path)
    output = ask(folder, "--since", "14:13:20", "--until", "14:23:20").out
    assert output.endswith(
        "  prod/shop\n"
        "\n"
        "Findings:\n"
        "  14:13:20 to 14:18:30  prod/shop (42): Lock main.mu: 54 % of the time of requests.\n"
        "  14:16:20  api (7): Leak: \\x1b[31m12 goroutines.\n"
    )
    assert "Findings" not in ask(folder, "--since", "14:20", "--until", "14:23:20").out


def test_a_service_has_its_own_findings_before_its_profiles(writer: Ring, tmp_path: Path) -> None:
    writer.note_findings(findings(START_S + 310, HOT))
    writer.note_findings(findings(START_S + 180, LEAK, pid=7))
    folder = ended(writer, tmp_path)
    at = ("--since", "14:13:20", "--until", "14:23:20")
    output = ask(folder, *at, "--name", "shop").out
    assert output.startswith(
        "prod/shop, 2026-09-21 14:13:20 to 14:23:20, UTC\n"
        "Watched: 10.0 min of 10.0 min (100 %); 1 process: 42.\n"
        "Findings:\n"
        "  14:13:20 to 14:18:30  (42): Lock main.mu: 54 % of the time of requests.\n"
        "\n"
    )
    assert "Leak" not in output
    assert "Findings" not in ask(folder, *at, "--name", "api", "--pid", "9999999", "--json").out


def test_of_many_findings_the_last_are_shown(writer: Ring, tmp_path: Path) -> None:
    for number in range(15):
        one = replace(HOT, subject=str(number), title=f"Lock {number}.", since_s=START_S + number)
        writer.note_findings(findings(START_S + 310, one))
    lines = ask(ended(writer, tmp_path), "--since", "14:13:20", "--until", "14:23:20").out
    assert next(line for line in lines.splitlines() if "Lock" in line).endswith("Lock 3.")
    assert lines.endswith("Lock 14.\n  3 earlier findings.\n")


def test_json_has_all_fields(writer: Ring, tmp_path: Path) -> None:
    writer.note_findings(findings(START_S + 310, HOT))
    writer.note_findings(findings(START_S + 310, LEAK, pid=7))
    found = json.loads(
        ask(ended(writer, tmp_path), "--since", "14:13:20", "--until", "14:23:20", "--json").out
    )
    by_pid = {process["pid"]: process["findings"] for process in found["processes"]}
    assert by_pid[42] == [
        {
            "from": "2026-09-21T14:13:20+00:00",
            "to": "2026-09-21T14:18:30+00:00",
            "kind": "hot_lock",
            "level": "slow",
            "title": "Lock main.mu: 54 % of the time of requests.",
            "lines": ["Its holder: waits for 10.0.0.7:5432."],
            "share": 0.54,
            "error": 0.02,
            "place": "main.get (main.go:7)",
        }
    ]
    assert [(one["kind"], one["place"]) for one in by_pid[7]] == [("goroutine_leak", None)]
