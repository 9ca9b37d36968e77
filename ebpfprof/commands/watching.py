"""Sampling processes repeatedly, until a signal or for some time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from ebpfprof.system.signals import Signals

_TICK_S: Final = 0.05
Watched = TypeVar("Watched")


def sample_repeatedly(
    watched: list[Watched],
    sample: Callable[[Watched], bool],
    signals: Signals,
    *,
    every_s: float,
    duration_s: float | None,
) -> None:
    """Sample all processes every `every_s` seconds until a signal, or for `duration_s`.

    `sample` returns False for a process that can't be read any more. It also ends when none is
    left.
    """
    next_s = time.monotonic()
    end_s = float("inf") if duration_s is None else next_s + duration_s
    while watched and not signals.came:
        watched = [process for process in watched if sample(process)]
        next_s = max(next_s + every_s, time.monotonic())
        if next_s > end_s:
            break
        while time.monotonic() < next_s and not signals.came:
            time.sleep(min(_TICK_S, every_s))  # in ticks, so that a signal ends it soon
