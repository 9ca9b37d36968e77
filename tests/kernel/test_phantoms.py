"""Goroutines under contention never hang, and those that hang are found at once."""

from __future__ import annotations

import pytest

from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.goroutines.fields import GOID_SHIFT, SEQUENCE_SHIFT
from ebpfprof.goruntime.goroutines.table import Heads
from ebpfprof.goruntime.waits.dump import dump
from ebpfprof.goruntime.waits.standing import DUMPED
from tests.builds import NEWEST
from tests.kernel.parked_program import running
from tests.tools.phantoms import Claim, search


@pytest.mark.full
def test_contention_is_not_a_hang_and_hangs_are_found_in_two_samples() -> None:
    outcome = search(goes_on=lambda found: found.rounds < 3, samples=50, apart_s=0.3)
    assert outcome.phantoms == []
    assert outcome.hangs == 3 * 2 * 6
    assert outcome.missed == 0


def test_a_claim_is_a_phantom_if_the_goroutine_never_waited_so_long() -> None:
    assert Claim(7, stood_ns=3, longest_ns=2).is_phantom
    assert not Claim(7, stood_ns=2, longest_ns=3).is_phantom


@pytest.mark.parametrize("moved_at", [0, 3, DUMPED.samples - 2])
def test_a_goroutine_that_moved_at_any_sample_of_a_dump_did_not_stand(
    moved_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """g.trackingSeq counts modulo 256, so a single sample may find what the one before found."""
    samples = 0
    read_table = GoroutineScanner.read_table

    def changing(self: GoroutineScanner) -> Heads:
        nonlocal samples
        samples += 1
        heads = read_table(self)
        if samples == moved_at + 1:
            heads.waits[heads.waits >> GOID_SHIFT == moving] ^= 1 << SEQUENCE_SHIFT
        return heads

    with running(NEWEST, "plain") as run:
        (moving,) = run.reports["turnLeft"]["goids"]
        others = set(run.reports["send"]["goids"])
        monkeypatch.setattr(GoroutineScanner, "read_table", changing)
        found = dump(run.go, apart_s=0.05).goroutines
        run.target.kill()
    stood = {each.goid for each in found if each.stood_ns}
    assert samples == DUMPED.samples - 1  # and the last one, at all of it
    assert moving not in stood
    assert others <= stood
