"""What ebpfprof itself used counts where all processors were busy."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebpfprof.overhead.busy import ProcessorTime, on_busy_processors


def test_the_kernels_ticks_are_seconds_of_all_processors(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 200 300 400 50 6 7 8 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    assert ProcessorTime.now(stat) == ProcessorTime(10.71, 4.5)


@pytest.mark.parametrize("text", ["", "cpu  1 2 x 4 5\n", "cpu  1\n"])
def test_a_kernel_without_these_numbers_takes_no_part(tmp_path: Path, text: str) -> None:
    stat = tmp_path / "stat"
    stat.write_text(text)
    assert ProcessorTime.now(stat) == ProcessorTime()
    assert ProcessorTime.now(tmp_path / "none").taken(1.0) is None


@pytest.mark.parametrize(
    ("idle_s", "taken"),
    [
        pytest.param(0.0, 0.1, id="busy"),
        pytest.param(1.0, 0.1, id="nearly busy"),
        pytest.param(1.1, None, id="a tenth of one processor idle"),
    ],
)
def test_what_we_used_counts_if_processors_were_busy(idle_s: float, taken: float | None) -> None:
    spent = ProcessorTime(120.0, 7.0 + idle_s) - ProcessorTime(100.0, 7.0)
    assert spent.taken(2.0) == taken


def test_this_machine_tells() -> None:
    assert ProcessorTime.now().all_s > ProcessorTime.now().idle_s > 0


def test_our_part_is_reported() -> None:
    assert on_busy_processors(0.031) == (
        "All processors were busy: ebpfprof itself used 3.1 % of their time."
    )
