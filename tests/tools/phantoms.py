"""Looks for hangs that are none: in a program whose goroutines wait for each other all the time.

    sudo .venv/bin/python -m tests.tools.phantoms --minutes 60

The target (tests/targets/contention) holds locks for 2 ms, sends, selects, reads and writes behind
an RWMutex, waits for conditions and groups, starves and hands over, and notes by its own clock for
how long each goroutine waited at most. Whatever we say did not move for some time is a phantom if
that is longer. So a machine that is slow makes none. In each round we sample a hundred times, as a
recording does, and dump once. Then goroutines hang in each way: two samples, and one dump, must
find all of them. No dump may report a deadlock, a lost wake, or a program asleep. Nor may dumps
whose samples are less than a millisecond apart, which find many goroutines that did not move: they
look closer at each lock that is free just then. Exits with 1 if there was a phantom, or a hang that
was not found.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Final
from unittest.mock import patch

from ebpfprof.export.tables.stuck import lines
from ebpfprof.goruntime.goroutines.parked import parked_goroutines
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.goruntime.samples.sampler import GoroutineSampler
from ebpfprof.goruntime.waits import stuck_check
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.goruntime.waits.standing import OPEN_WAIT, Threshold
from ebpfprof.goruntime.waits.stuck_check import StuckCheck
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.process.process import Target as Process
from ebpfprof.profile.stuck import stuck
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target

SAMPLES: Final = 100  # a round
SHORT_DUMPS: Final = 20  # a round
SHORT_S: Final = 0.0005  # from their first sample to their last
CLOSER_S: Final = (0.0, 0.0003)  # between the further samples of these
MEAN_S: Final = 0.01  # between two samples
APART_S: Final = 0.5  # of a dump
_TOLD_S: Final = 60


@dataclass(frozen=True)
class Claim:
    """That a goroutine did not move for so long, and for how long it waited at most."""

    goid: int
    stood_ns: int
    longest_ns: int

    @property
    def is_phantom(self) -> bool:
        """Whether it never waited for so long."""
        return self.stood_ns > self.longest_ns


@dataclass
class Outcome:
    """What was found in that many rounds: `hangs` goroutines hung, of which some were `missed`.

    `stuck` are claims of deadlocks and the like; `closer` is how often it was looked for them.
    """

    rounds: int = 0
    samples: int = 0
    dumps: int = 0
    claims: int = 0
    hangs: int = 0
    missed: int = 0
    closer: int = 0
    phantoms: list[Claim] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether there was no phantom, and no hang was missed."""
        return not self.phantoms and not self.stuck and not self.missed

    def __str__(self) -> str:
        reported = (
            f"{self.rounds} rounds, {self.samples} samples, {self.dumps} dumps: "
            f"{self.claims} goroutines that did not move, {len(self.phantoms)} of them phantoms; "
            f"{self.hangs} hangs, {self.missed} of them not found; {self.closer} further samples, "
            f"{len(self.stuck)} claims of deadlocks, lost wakes or all asleep"
        )
        return "\n".join([reported, *map(str, self.phantoms[:10]), *self.stuck[:10]])


class Round:
    """Samples of one target, which continue from round to round."""

    def __init__(self, target: Target, go: GoTarget, held: ExitStack) -> None:
        self._target, self._go = target, go
        self._sampler = GoroutineSampler(go, has_labels=False)
        self._dumper = GoroutineDumper(go)

    def run(self, into: Outcome, *, samples: int, apart_s: float) -> None:
        """Look and dump, while all move, and then while some hang."""
        for _ in range(samples):
            sleep(MEAN_S * random.uniform(0.5, 1.5))
            self._judge(self._standing(OPEN_WAIT), into)
        self._judge(self._dumped(apart_s, into), into)
        self._look_closer(into)
        answer = self._target.ask("hang", "hanging")
        hanging = {int(word) for word in answer.split()[1:]}
        self._standing(Threshold(1))
        found = self._standing(Threshold(2)), self._dumped(apart_s, into)
        into.hangs += len(found) * len(hanging)
        into.missed += sum(len(hanging - each.keys()) for each in found)
        self._target.ask("release", "released")
        into.samples += samples + 2
        into.dumps += 2
        into.rounds += 1

    def _standing(self, threshold: Threshold) -> dict[int, int]:
        """For how long goroutines stood until a sample now, at least: ns, by id."""
        now_ns = kernel_now_ns()
        self._sampler.sample()
        parked = parked_goroutines(self._go).goroutines
        since = self._sampler.standing(parked, threshold)
        return {each.goid: now_ns - since[each.address] for each in parked if each.address in since}

    def _dumped(self, apart_s: float, into: Outcome) -> dict[int, int]:
        dump = self._dumper.dump(apart_s=apart_s)
        into.stuck += [" ".join(lines(each)) for each in stuck(dump)]
        return {
            goroutine.goid: goroutine.stood_ns
            for goroutine in dump.goroutines
            if goroutine.stood_ns
        }

    def _look_closer(self, into: Outcome) -> None:
        """Dump in so short a time that many goroutines do not move."""
        with patch.object(stuck_check, "APART_S", CLOSER_S):
            for _ in range(SHORT_DUMPS):
                self._dumped(SHORT_S, into)
        into.dumps += SHORT_DUMPS

    def _judge(self, stood: dict[int, int], into: Outcome) -> None:
        if not stood:
            return
        longest = json.loads(self._target.ask("longest", "{"))
        for goid, stood_ns in stood.items():
            if str(goid) in longest:
                claim = Claim(goid, stood_ns, longest[str(goid)])
                into.claims += 1
                if claim.is_phantom:
                    into.phantoms.append(claim)


def search(
    *,
    goes_on: Callable[[Outcome], bool],
    samples: int = SAMPLES,
    apart_s: float = APART_S,
    notify: Callable[[Outcome], None] = lambda _: None,
) -> Outcome:
    """Look for as long as `goes_on`; `notify` after each round."""
    outcome = Outcome()
    with ExitStack() as held:
        confirm = held.enter_context(
            patch.object(
                StuckCheck, "sample_again", autospec=True, side_effect=StuckCheck.sample_again
            )
        )
        target = held.enter_context(Target.start(program("contention")))
        process = held.enter_context(Process(target.pid))
        rounds = Round(target, inspect(process), held)
        while goes_on(outcome):
            rounds.run(outcome, samples=samples, apart_s=apart_s)
            outcome.closer = confirm.call_count
            notify(outcome)
        target.kill()
    return outcome


def main(arguments: Sequence[str]) -> int:
    """Command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="tests.tools.phantoms", description="Look for phantoms.")
    parser.add_argument("--minutes", type=float, default=60)
    until = monotonic() + 60 * parser.parse_args(arguments).minutes
    last_s = monotonic()

    def notify(outcome: Outcome) -> None:
        nonlocal last_s
        if monotonic() > last_s + _TOLD_S:
            last_s = monotonic()
            print(outcome, flush=True)

    outcome = search(goes_on=lambda _: monotonic() < until, notify=notify)
    print(outcome)
    return not outcome.is_good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
