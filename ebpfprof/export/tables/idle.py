"""The line about idle waits that a table or a file hides."""

from collections.abc import Sequence

from ebpfprof.console.text import counted, duration
from ebpfprof.profile.idle import Hidden
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.registry import find_kind

_MAX_RULES_NAMED = 2


def hidden_line(
    profile: Profile,
    hidden: Sequence[Hidden],
    *,
    has_option: bool = False,
    width: int | None = None,
) -> str:
    """What of a profile was hidden as idle, in a line with its newline; "" without hidden waits.

    With `has_option` it names the option that shows them. The rules are named if that fits into
    `width` columns. Without their number, where tables of the kind show none.
    """
    if not hidden:
        return ""
    whole_ns = sum(row.delay_ns for row in hidden)
    count = sum(row.count for row in hidden)
    largest = sorted(hidden, key=lambda row: -row.delay_ns)[:_MAX_RULES_NAMED]
    named = ", ".join(f"{row.rule.name} {duration(row.delay_ns)}" for row in largest)
    more = ", ..." if len(hidden) > _MAX_RULES_NAMED else ""
    kind = find_kind(profile.kind)
    number = "" if kind and not kind.table.count else f" in {counted(count, 'wait')}"
    option = "; --show-idle shows them" if has_option else ""
    text = f"Hidden as idle: {duration(whole_ns)}{number}"
    line = f"{text} ({named}{more}){option}"
    return f"{line if width is None or len(line) <= width else text + option}\n"
