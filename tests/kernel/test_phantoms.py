"""Goroutines under contention never hang, and those that hang are found at once."""

from __future__ import annotations

import time

import pytest

from ebpfprof.goruntime.goroutines.parked import parked_goroutines
from ebpfprof.goruntime.waits.dump import dump
from ebpfprof.goruntime.waits.standing import DUMPED
from symbolizer.codeanalysis.globals import allgs_address
from tests.builds import NEWEST
from tests.go_target import inspect
from tests.kernel.acting_process import ActingProcess, sample_begun
from tests.kernel.parked_program import poke, running, word
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
    with running(NEWEST, "plain") as run:
        reads, memory = 0, run.go.target.memory
        (moving,) = run.reports["turnLeft"]["goids"]
        others = set(run.reports["send"]["goids"])
        allgs = allgs_address(run.go.binary) + run.go.load_bias
        (g,) = (one.address for one in parked_goroutines(run.go).goroutines if one.goid == moving)
        at = g + run.go.binary.layout.offset("g", "trackingSeq")
        before = word(memory, at)

        def behind(address: int, _: bytes) -> None:
            """Have it move just before a sample reads the goroutines, and back before the next."""
            nonlocal reads
            if address == allgs:
                reads += 1
                poke(run.target.pid, at, before ^ (sample_begun(reads) == moved_at))

        with ActingProcess(run.target.pid, behind) as process:
            go = inspect(process)
            reads = 0
            with monkeypatch.context() as patched:
                patched.setattr(time, "monotonic", lambda: 0.0)  # or there may be fewer samples
                found = dump(go, apart_s=0.05).goroutines
        run.target.kill()
    stood = {each.goid for each in found if each.stood_ns}
    assert sample_begun(reads) >= DUMPED.samples - 1
    assert moving not in stood
    assert others <= stood
