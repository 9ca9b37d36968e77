"""The line about idle waits that a table or a file hides."""

from collections.abc import Sequence

from ebpfprof.console.text import counted, duration
from ebpfprof.profile.idle import Hidden

_MAX_RULES_NAMED = 4


def hidden_line(hidden: Sequence[Hidden]) -> str:
    """What was hidden as idle, in a line that ends with a newline; "" without hidden waits."""
    if not hidden:
        return ""
    whole_ns = sum(each.delay_ns for each in hidden)
    count = sum(each.count for each in hidden)
    largest = sorted(hidden, key=lambda each: -each.delay_ns)[:_MAX_RULES_NAMED]
    named = ", ".join(f"{each.rule.name} {duration(each.delay_ns)}" for each in largest)
    more = ", ..." if len(hidden) > _MAX_RULES_NAMED else ""
    return f"Hidden as idle: {duration(whole_ns)} in {counted(count, 'wait')} ({named}{more})\n"
