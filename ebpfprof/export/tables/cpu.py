"""A CPU profile as a table for people: which functions used the processor."""

from collections.abc import Iterable
from dataclasses import dataclass

from ebpfprof.export.tables import functions
from ebpfprof.profile.model import Profile, Sample

_NOTHING = "Nothing was recorded: the program used no CPU time.\n"


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function: CPU time in itself, and in itself and all that it called.

    Text is as the target has it: not fit for a terminal before text.printable().
    """

    function: str
    file: str
    own_ns: int
    total_ns: int


def function_rows(samples: Iterable[Sample]) -> list[FunctionRow]:
    """All functions of a CPU profile, those that used most themselves first."""
    return [
        FunctionRow(each.function, each.file, each.own, each.total)
        for each in functions.function_sums(samples)
    ]


def render(profile: Profile, *, limit: int = 15, width: int | None, color: bool) -> str:
    """The first functions as a table of at most `width` columns; None: as many as it takes.

    Without `color` the text is plain ASCII. Nothing that the target says reaches the terminal
    as a control character. Ends with a newline.
    """
    if not any(sample.values[-1] for sample in profile.samples):
        return _NOTHING
    return functions.render(profile, limit=limit, width=width, color=color)
