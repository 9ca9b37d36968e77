"""The option --until-wait: what a goroutine waits for, and how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ebpfprof.console.quantities import similar
from ebpfprof.console.text import listed, printable
from ebpfprof.settings.values import ConvertedValue, TimeValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.tracing.wait_conditions import WaitCondition

LEAST_S: Final = 0.05  # ebpfprof.tracing.wait_conditions
_TIME: Final = TimeValue(LEAST_S)
_LOCKS: Final = "locks"
_STATES: Final = (_LOCKS, "runnable", "syscall")


class UntilWait(NamedTuple):
    """A condition of --until-wait: `what` as in tracing.wait_conditions, and seconds."""

    what: str
    least_s: float


def _until_wait(text: str) -> UntilWait:
    wait, is_named, time = text.rpartition("=")
    wait = wait.strip()
    if is_named and not wait:
        raise ValueError("WHAT is empty")
    try:
        return UntilWait(wait or _LOCKS, _TIME.read(time))
    except ValueError as error:
        raise ValueError(f"TIME {error}") from error


UNTIL_WAIT: Final = ConvertedValue(
    'TIME, for locks, or WHAT=TIME, such as "chan receive=2s"', _until_wait, shows_reason=True
)


def wait_conditions(typed: Sequence[UntilWait], go: GoTarget) -> list[WaitCondition]:
    """The conditions for this program.

    Raises click.UsageError if the program has neither such a wait reason nor such a function, or
    if Go does not count waits for the reason; GoTableError.
    """
    from ebpfprof.goruntime.goroutines.states import uncounted_reasons
    from ebpfprof.tracing.wait_conditions import reasons_of, wait_condition

    layout = go.binary.layout
    uncounted = uncounted_reasons(layout)
    reasons = sorted(reasons_of(layout), key=str.casefold)
    by_name = {name.casefold(): name for name in (*_STATES, *reasons)}
    conditions = []
    for wait, least_s in typed:
        known = by_name.get(wait.casefold())
        if known is not None and reasons_of(layout).get(known) in uncounted:
            raise click.UsageError(
                f"--until-wait: Go does not count the waits for '{known}', so one long wait looks "
                "like many short ones. Name another reason, or a function."
            )
        if known is None and not go.binary.has_function(wait):
            raise click.UsageError(
                f"--until-wait: Go {printable(go.binary.version.text.removeprefix('go'))} has no "
                f"wait reason '{printable(wait)}', and the program has no such function."
                f"{similar(wait, by_name.values())} Reasons are {listed([*_STATES, *reasons])}; "
                "functions are written as main.handle or main.(*Server).handle."
            )
        conditions.append(wait_condition(known or wait, least_s, layout))
    return conditions
