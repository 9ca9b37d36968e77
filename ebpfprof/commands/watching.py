"""Looking at processes again and again, until a signal or for some time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from ebpfprof.system.signals import Signals

_TICK_S: Final = 0.05
Watched = TypeVar("Watched")


def look_again(
    watched: list[Watched],
    look: Callable[[Watched], bool],
    signals: Signals,
    *,
    every_s: float,
    duration_s: float | None,
) -> None:
    """Look at each every `every_s` seconds until a signal, or for `duration_s`.

    `look` returns False for one that can't be looked at any more. It also ends when none is left.
    """
    began_s = next_s = time.monotonic()
    end_s = float("inf") if duration_s is None else began_s + duration_s
    while watched and not signals.came:
        watched = [each for each in watched if look(each)]
        next_s = max(next_s + every_s, time.monotonic())
        if next_s > end_s:
            break
        while time.monotonic() < next_s and not signals.came:
            time.sleep(min(_TICK_S, every_s))  # in ticks: a signal ends the watch
