"""The stacks of goroutines that are idle by behaviour, from looks at the goroutines."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.goroutines.states import STATES
from ebpfprof.goruntime.limits import MAX_DEPTH
from ebpfprof.profile.behaviour import IdleBehaviour, together

if TYPE_CHECKING:
    from ebpfprof.goruntime.samples.shared_sampler import SharedSampler

_NOT_WAITING: Final = frozenset(STATES.values())


class IdleStacks:
    """What looks at one target say. A recording of every event looks for nothing else."""

    def __init__(self, looks: SharedSampler) -> None:
        self._looks = looks
        self._is_due = self._is_looking = False

    def start(self) -> None:
        """Have the next poll() begin to look, for this alone.

        Not at once: the thread that looks would keep the rights that attaching probes needs.
        """
        self._is_due = True

    def poll(self) -> None:
        """Begin to look if that is due.

        Without the rights to, and where there are very many goroutines, only names tell what is
        idle.
        """
        if self._is_due:
            self._is_due = False
            with suppress(EbpfprofError):  # then by names only: see above
                self._looks.start()
                self._is_looking = True
        elif self._is_looking and self._looks.sampler.beyond:
            self.stop()

    def stop(self) -> None:
        """End the looks of start(); what they found stays."""
        self._is_due = False
        if self._is_looking:
            self._is_looking = False
            self._looks.stop()

    def found(self) -> dict[tuple[int, ...], IdleBehaviour]:
        """The stacks, by return addresses from the park on, whatever the labels."""
        if not self._looks.has_begun:
            return {}
        sampler, idle = self._looks.sampler, self._looks.idle()
        by_stack = defaultdict[tuple[int, ...], list[IdleBehaviour | None]](list)
        for state in self._looks.totals().states if idle else ():
            at = None if state.word in _NOT_WAITING else sampler.park_at(state.pcs)
            if at is not None:
                by_stack[state.pcs[at:][:MAX_DEPTH]].append(idle.get(state))
        behaviour_of = {stack: together(behaviours) for stack, behaviours in by_stack.items()}
        return {stack: behaviours for stack, behaviours in behaviour_of.items() if behaviours}
