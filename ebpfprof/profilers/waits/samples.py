"""Sums of waits, by return addresses → samples with the stacks that Go's own profile would show."""

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from ebpfprof.profile.model import Label, Sample
from ebpfprof.profilers.waits.rows import StackTotal
from ebpfprof.profilers.waits.stacks import StackTranslator, WaitStack
from symbolizer.errors import TooMuchToRead


class WaitSamples(NamedTuple):
    """The samples of a profile of waits, and what is to be said of them.

    `cut` is how many events have a stack that Go cuts, `spread` the delay and its variance by stack
    and labels, where there is one, and `failure`, if there is one, why stacks consist of addresses
    only. Those of `given_up` events do because names would take too much.
    """

    samples: list[Sample]
    cut: int
    spread: dict[tuple[WaitStack, tuple[Label, ...]], tuple[int, float]]
    failure: Exception | None
    given_up: int


@dataclass(slots=True)
class _Sum:
    """What is known of one stack, of all totals that it has."""

    count: float = 0.0
    delay_ns: int = 0
    delay_variance: float = 0.0


def wait_samples(
    translator: StackTranslator, totals: Sequence[tuple[StackTotal, tuple[Label, ...]]]
) -> WaitSamples:
    """Samples added up by the stack that Go keeps and by the labels."""
    with suppress(Exception):  # it comes up again, at the stacks that it is about
        translator.look_up(set[int]().union(*(total.return_pcs for total, _ in totals)))
    sums = defaultdict[tuple[WaitStack, tuple[Label, ...]], _Sum](_Sum)
    cut = given_up = 0.0
    failure: Exception | None = None
    for total, labels in totals:
        try:
            stack = translator.stack(total.kind, total.return_pcs)
        except TooMuchToRead:
            given_up += total.count
            stack = translator.bare_stack(total.return_pcs)
        except Exception as error:  # whatever it is: names can be had again, the waits cannot
            failure = failure or error
            stack = translator.bare_stack(total.return_pcs)
        if stack is None:
            continue
        so_far = sums[stack, labels]
        so_far.count += total.count
        so_far.delay_ns += total.delay_ns
        so_far.delay_variance += total.delay_variance
        cut += total.count if stack.is_cut else 0
    # Go, too, cuts the fraction off and shows at least one (runtime/mprof.go, BlockProfile).
    samples = [
        Sample(stack.locations, (max(1, int(each.count)), each.delay_ns), labels)
        for (stack, labels), each in sums.items()
    ]
    spread = {
        key: (each.delay_ns, each.delay_variance)
        for key, each in sums.items()
        if each.delay_variance
    }
    return WaitSamples(samples, int(cut), spread, failure, math.ceil(given_up))
