"""How long waits were, against Go's own execution trace of the same run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from ebpfprof.profile.wait_histogram import NO_LENGTHS, SCALE, WaitHistogram
from ebpfprof.profilers.options import Options
from ebpfprof.recording.session import Session
from tests.builds import in_full
from tests.differential.go_trace import WAITING, Transition, transitions
from tests.kernel.programs import NEWEST, program
from tests.kernel.windowed_runs import is_below, reports_of_work
from tests.targets_run import Target
from tests.toolchains import toolchain

WAITS = 4000
OFTEN = 100


@pytest.mark.parametrize("shape", ["tail", *in_full("bimodal")])
def test_each_bucket_has_the_waits_that_gos_trace_has(shape: str, tmp_path: Path) -> None:
    arguments = f"-shape={shape}", f"-waits={WAITS}"
    theirs = tmp_path / "go.trace"
    with Target.start(program("lengths"), *arguments) as target:
        target.ask(f"trace {theirs}", "begun")
        with Session([target.pid], Options(kinds=("block",))) as session:
            session.start()
            (report,) = reports_of_work(session, target)
        target.ask("end", "ended")
    (profile,) = report.profiles
    found = (sample.lengths for sample in profile.samples if is_below(sample, "wait"))
    ours = sum(found, NO_LENGTHS)
    text = toolchain(NEWEST).go("tool", "trace", "-d=parsed", theirs)
    go = WaitHistogram.of(received(transitions(text.splitlines())))
    assert ours.total == go.total == WAITS
    # Both read a clock for each wait, one after the other: near a limit they may differ.
    for part in (0.1, 0.5, 0.9, 0.99, 1.0):
        assert abs(bucket_at(ours, part) - bucket_at(go, part)) <= 1, part


def received(changes: Iterable[Transition]) -> list[int]:
    """How long goroutines that do so often waited to receive, in ns: the tracer's own does not."""
    since_ns: dict[int, int] = {}
    found = defaultdict[int, list[int]](list)
    for each in changes:
        if each.state == WAITING and each.reason == "chan receive":
            since_ns[each.goid] = each.time_ns
        elif each.before == WAITING and each.goid in since_ns:
            found[each.goid].append(each.time_ns - since_ns.pop(each.goid))
    often = (lengths for lengths in found.values() if len(lengths) >= OFTEN)
    return [ns for lengths in often for ns in lengths]


def bucket_at(lengths: WaitHistogram, part: float) -> int:
    quantile = lengths.quantile(part)
    assert quantile
    assert math.isfinite(quantile.most_ns)
    return SCALE.bucket_of(int(quantile.ns))
