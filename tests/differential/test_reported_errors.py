"""Reported errors beside Go's own profiles: few rounds of tests.tools.error_rounds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from tests.tools.error_rounds import Load, all_rounds, one_round, programs, shown, tallied

pytestmark = pytest.mark.alone

ROUNDS = 8
# Rounds of one stack are few, and stacks of one round depend on each other.
SIGMAS = 4
# By default a second has few windows, in which few releases are seen: others are dashes.
LEAST_SHOWN = {"default": ROUNDS // 2, "eighth": 2 * ROUNDS, "wall": 2 * ROUNDS}


@pytest.mark.full
@pytest.mark.parametrize("way", ["default", "eighth", "wall"])
def test_intervals_contain_gos_own_numbers_as_often_as_they_say(way: str) -> None:
    known = programs(1.0)
    chosen = [known[title] for title in ("load", "contended mutex", "worker pool", "Gosched loops")]
    rows = list(all_rounds(chosen, [way], ROUNDS))
    by_number = {what: [row for row in rows if row.what == what] for what in {r.what for r in rows}}
    assert by_number.keys() >= ({"wall delay"} if way == "wall" else {"block count", "mutex count"})
    for what, some in by_number.items():
        judged = [row for row in some if row.is_shown]
        assert len(judged) >= LEAST_SHOWN[way], (what, shown(rows))
        inside = sum(row.is_inside for row in judged)
        least = 0.95 * len(judged) - SIGMAS * math.sqrt(0.95 * 0.05 * len(judged))
        assert inside >= least, (what, shown(rows))


@pytest.mark.full
def test_few_samples_have_true_errors_of_goroutines_that_begin_together(tmp_path: Path) -> None:
    """As on a busy machine: all goroutines of a stack begin between the same two samples."""
    with LiveSession(Options(kinds=("wall",), max_overhead=1, wall_hz=8)) as session:
        rows = [row for _ in range(6) for row in one_round(session, "wall", Load(1.5), tmp_path)]
    ((_, long),) = [
        (stack, found)
        for (*_, stack), found in tallied(rows).items()
        if stack[1][0] == "main.waitLong"
    ]
    # About 12 samples of the stack are taken.
    assert long.rounds >= 4
    assert long.inside >= long.rounds - 1, shown(rows)
