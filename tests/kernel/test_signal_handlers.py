"""CPU samples in handlers of signals, which have a stack of their own, from the first one on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from ebpfprof.profilers.cpu.unwinder import Ending
from tests.builds import builds
from tests.differential.cpustacks import NOT_LEARNT, SIGNAL_ENTRIES, without_room
from tests.kernel.programs import program
from tests.kernel.run_command import COMMAND
from tests.kernel.test_cpu import sampled
from tests.recorder import only_profile, run
from tests.targets_run import Target

BUILDS = [("1.19", "plain"), ("1.22", "cgo"), ("1.27", "plain"), ("1.27", "cgo")]
HZ = "999"  # beside a thousand signals a second, some samples hit a handler


@pytest.mark.full
@pytest.mark.parametrize(("minor", "mode"), builds(*BUILDS))
def test_a_short_run_with_many_signals_has_whole_stacks(
    minor: str, mode: str, tmp_path: Path
) -> None:
    target = (str(program("signals", minor, mode)), "600")
    options = ("--profile", "cpu", "--hz", HZ)
    finished = run(*options, "--", *target, folder=tmp_path, command=COMMAND)
    assert finished.code == 0, finished.stderr
    profile = only_profile(tmp_path)
    in_handlers, cut = 0, Counter[str]()
    for sample in profile.samples:
        names = [frame.function for at in sample.locations for frame in at.frames]
        in_handlers += sample.values[0] * bool(SIGNAL_ENTRIES.intersection(names))
        if names[-1] == NOT_LEARNT:
            cut[" < ".join(names)] += sample.values[0]
    assert in_handlers
    assert cut.total() <= without_room(profile), cut


@pytest.mark.parametrize(("minor", "mode"), builds(*BUILDS))
def test_stacks_are_copied_with_what_the_handler_interrupted(minor: str, mode: str) -> None:
    """Nothing is learnt here, so that each sample is finished from its copies."""
    with Target.start(program("signals", minor, mode)) as target:
        found = sampled(target, "compute 800", "done", learn=False)
    endings = Counter[Ending]()
    for stack, count in found.items():
        endings[stack.ending] += count
    assert endings[Ending.WHOLE] >= 20
    assert not endings[Ending.UNLEARNED]
