"""What `attach` shows in a terminal: what matters, without scrolling. More: tests/recorded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.builds import in_full
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.kernel.screens import Screen, screen
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]


def shown(terminal: Screen, folder: Path, pid: int, *more: str) -> list[str]:
    """The lines that there are once it is over, from its first message on."""
    command = f"{sys.executable} -m ebpfprof attach {pid} -d 2s {' '.join(more)}"
    terminal.type(f"clear; cd {folder}; {command}; echo status $?")
    terminal.wait_for("^status 0$")
    lines = terminal.history.splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("recording "))
    return lines[first : lines.index("status 0")]


def test_all_of_it_fits_80_by_24(tmp_path: Path) -> None:
    with (
        Target.start(program("demo")) as target,
        screen(tmp_path, 80, 24, PYTHONPATH=str(ROOT)) as terminal,
    ):
        # Or it depends on the machine's load which releases are recorded.
        lines = shown(terminal, tmp_path, target.pid, "--max-overhead", "50")
        assert not has_probes(target.pid)
    assert len(lines) <= 23
    text = "\n".join(lines)
    for each in ("Waits of", "Releases of", "CPU time of", "Mutex.Lock  main.(*PriceCache).Get"):
        assert each.replace("  ", " ") in " ".join(text.split()), text
    assert ".{block,mutex,cpu}.pb.gz" in text
    assert text.count("go tool pprof") == 1
    assert "ebpfprof report demo-" in text
    assert "More with --long." in text
    assert any(line.startswith("Overhead: ") for line in lines)
    assert any(line.startswith("    go tool pprof -http=: demo-") for line in lines)


@pytest.mark.full
@pytest.mark.parametrize(("rows", "least"), [*in_full((24, 1)), (50, 4)])
def test_a_higher_terminal_has_more_rows(tmp_path: Path, rows: int, least: int) -> None:
    with (
        Target.start(program("demo")) as target,
        screen(tmp_path, 100, rows, PYTHONPATH=str(ROOT)) as terminal,
    ):
        lines = shown(terminal, tmp_path, target.pid, "--profile", "block", "--max-overhead", "0")
    assert sum("main." in line or "net/http" in line for line in lines) >= least
    assert len(lines) < rows


@pytest.mark.full
def test_the_long_form_has_all(tmp_path: Path) -> None:
    with (
        Target.start(program("demo")) as target,
        screen(tmp_path, 80, 24, PYTHONPATH=str(ROOT)) as terminal,
    ):
        lines = shown(terminal, tmp_path, target.pid, "--long")
    text = "\n".join(lines)
    assert len(lines) > 40
    assert "\nebpfprof used " in text
    assert "probe hits" in text
