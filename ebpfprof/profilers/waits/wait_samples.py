"""Turns sums of waits into samples with the stacks that Go's own profile would show."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from ebpfprof.profile.behaviour import IdleBehaviour, together
from ebpfprof.profile.model import Label, Sample
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram
from ebpfprof.profilers.waits.pair_stacks import UNKNOWN, bare_stack_of, stack_of
from ebpfprof.profilers.waits.rows import StackTotal
from ebpfprof.profilers.waits.wait_stacks import StackTranslator, WaitStack
from symbolizer.errors import TooMuchToRead

_NONE: Final[Mapping[tuple[int, ...], IdleBehaviour]] = MappingProxyType({})


class WaitSamples(NamedTuple):
    """The samples of a profile of waits, and facts for its comments.

    `cut` is the number of events with a stack that Go cuts. `spread` has the delay and its variance
    by stack and labels, for those with a variance. `failure` is why stacks have only addresses;
    None without an error. `given_up` events have only addresses because names would take too much.
    """

    samples: list[Sample]
    cut: int
    spread: dict[tuple[WaitStack, tuple[Label, ...]], tuple[int, float]]
    failure: Exception | None
    given_up: int


@dataclass(slots=True)
class _Sum:
    """The sums of all totals of one stack."""

    count: float = 0.0
    delay_ns: int = 0
    delay_variance: float = 0.0
    count_variance: float = 0.0
    lengths: WaitHistogram = NO_LENGTHS
    behaviours: list[IdleBehaviour | None] = field(default_factory=list)


def wait_samples(
    translator: StackTranslator,
    totals: Sequence[tuple[StackTotal, tuple[Label, ...]]],
    idle: Mapping[tuple[int, ...], IdleBehaviour] = _NONE,
) -> WaitSamples:
    """Samples added up by the stack that Go would show, and by labels.

    `idle` has the stacks of goroutines that are idle by behaviour, by their return addresses.
    """
    with suppress(Exception):  # stack() raises it again below
        wakers = (total.waker.return_pcs for total, _ in totals if total.waker)
        waiters = (total.return_pcs for total, _ in totals)
        translator.look_up(set[int]().union(*waiters, *wakers))
    sums = defaultdict[tuple[WaitStack, tuple[Label, ...]], _Sum](_Sum)
    cut = given_up = 0.0
    failure: Exception | None = None
    for total, labels in totals:
        try:
            stack = stack_of(translator, total)
        except TooMuchToRead:
            given_up += total.count
            stack = bare_stack_of(translator, total)
        except Exception as error:  # any error: keep the waits without names
            failure = failure or error
            stack = bare_stack_of(translator, total)
        if stack is None:
            continue
        so_far = sums[stack, labels]
        so_far.count += total.count
        so_far.delay_ns += total.delay_ns
        so_far.delay_variance += total.delay_variance
        so_far.count_variance += total.count_variance
        so_far.lengths += total.lengths
        so_far.behaviours.append(idle.get(total.return_pcs))
        cut += total.count if stack.is_cut else 0
    # Like Go, round down, but to at least one (runtime/mprof.go, BlockProfile). A pair may have
    # none: of an event that was counted with the waker before (bpf/waits/wakers.h).
    # Of releases that were not recorded, nobody knows how many there were.
    least = 0 if any(total.waker for total, _ in totals) else 1
    samples = [
        Sample(
            stack.locations,
            (max(least if stack is not UNKNOWN else 0, int(total.count)), total.delay_ns),
            labels,
            total.delay_variance,
            together(total.behaviours),
            total.count_variance,
            total.lengths,
        )
        for (stack, labels), total in sums.items()
    ]
    spread = {
        key: (total.delay_ns, total.delay_variance)
        for key, total in sums.items()
        if total.delay_variance
    }
    return WaitSamples(samples, int(cut), spread, failure, math.ceil(given_up))
