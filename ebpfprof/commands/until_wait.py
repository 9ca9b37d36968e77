"""The option --until-wait: what a goroutine waits for, and how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ebpfprof.commands.parameter_types import Duration
from ebpfprof.console.quantities import similar
from ebpfprof.console.text import listed, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.tracing.wait_conditions import WaitCondition

LEAST_S: Final = 0.05  # ebpfprof.tracing.wait_conditions
_LOCKS: Final = "locks"
_STATES: Final = (_LOCKS, "runnable", "syscall")


class UntilWait(NamedTuple):
    """What was typed: `what` stands for in tracing.wait_conditions, and seconds."""

    what: str
    least_s: float


class UntilWaitType(click.ParamType[UntilWait]):
    """TIME, which is about locks, or WHAT=TIME."""

    name = "condition"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> UntilWait:
        """What was typed. Raises click.BadParameter."""
        what, is_named, time = str(value).rpartition("=")
        what = what.strip()
        if is_named and not what:
            self.fail(
                f"'{printable(str(value))}' does not say what the goroutine waits for: write "
                "WHAT=TIME, as in 'chan receive=2s', or TIME alone for locks.",
                param,
                ctx,
            )
        least_s = Duration(LEAST_S).convert(time, param, ctx)
        return UntilWait(what or _LOCKS, least_s)


def wait_conditions(typed: Sequence[UntilWait], go: GoTarget) -> list[WaitCondition]:
    """The conditions for this program.

    Raises click.UsageError where it knows neither the reason nor the function, or where waits for
    the reason are not counted; GoTableError.
    """
    from ebpfprof.goruntime.goroutines.states import uncounted_reasons
    from ebpfprof.tracing.wait_conditions import reasons_of, wait_condition

    layout = go.binary.layout
    uncounted = uncounted_reasons(layout)
    reasons = sorted(reasons_of(layout), key=str.casefold)
    by_name = {each.casefold(): each for each in (*_STATES, *reasons)}
    found = []
    for what, least_s in typed:
        known = by_name.get(what.casefold())
        if known is not None and reasons_of(layout).get(known) in uncounted:
            raise click.UsageError(
                f"--until-wait: Go does not count the waits for '{known}', so ebpfprof cannot tell "
                "one long wait from many short ones. Name another reason, or a function."
            )
        if known is None and not go.binary.has_function(what):
            raise click.UsageError(
                f"--until-wait: Go {printable(go.binary.version.text.removeprefix('go'))} has no "
                f"wait reason '{printable(what)}', and the program no such function."
                f"{similar(what, by_name.values())} It knows {listed([*_STATES, *reasons])}; "
                "functions are written as main.handle or main.(*Server).handle."
            )
        found.append(wait_condition(known or what, least_s, layout))
    return found
