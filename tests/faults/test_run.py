"""How runs of explain are counted, and where the table is written."""

from __future__ import annotations

from pathlib import Path

from tests.faults.programs import FaultProgram, JudgedProgram
from tests.faults.results import write_section
from tests.faults.run import Run, part_right, table

LOCK = FaultProgram("prices", "hot_lock", also=("convoy",))
HEALTHY = FaultProgram("quiet", None)


def ran(program: JudgedProgram, *kinds: str) -> Run:
    return Run(program, kinds, seconds=10.5, cpu_s=0.8)


def test_the_planted_kind_or_a_synonym_must_come_first() -> None:
    runs = [ran(LOCK, "hot_lock", "leak"), ran(LOCK, "convoy"), ran(LOCK, "leak", "hot_lock")]
    assert [run.is_right for run in runs] == [True, True, False]
    assert part_right(runs, healthy=False) == 2 / 3


def test_silence_is_right_on_healthy_programs_only() -> None:
    runs = [ran(LOCK), ran(HEALTHY), ran(HEALTHY, "hot_lock"), ran(HEALTHY), ran(HEALTHY)]
    assert [run.is_right for run in runs] == [False, True, False, True, True]
    assert part_right(runs, healthy=True) == 3 / 4
    assert part_right(runs[1:], healthy=False) is None


def test_the_table_has_a_line_for_each_program() -> None:
    runs = [ran(LOCK, "hot_lock"), ran(HEALTHY), ran(LOCK, "leak"), ran(LOCK, "hot_lock")]
    assert table(runs)[2:] == [
        "| prices | hot_lock | hot_lock (2), leak (1) | 2 of 3 | 0 of 3 |",
        "| quiet | none | nothing | 1 of 1 | 1 of 1 |",
    ]


def test_a_section_of_the_results_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    document = tmp_path / "results.md"
    write_section(document, "Ours", "| a |\n\nFirst.")
    write_section(document, "Others", "| b |")
    before = document.read_text()
    write_section(document, "Ours", "| c |\n\nSecond.")
    assert document.read_text() == before.replace("| a |\n\nFirst.", "| c |\n\nSecond.")
    assert before.count("\n## ") == 2
    assert before.index("| b |") < before.index("| a |")
