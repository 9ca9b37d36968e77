"""The largest rows of any profile, in the table of its kind."""

from ebpfprof.export.kinds import default_index
from ebpfprof.export.tables import functions, operations, pairs
from ebpfprof.export.tables.idle import hidden_line
from ebpfprof.profile.idle import split
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.registry import find_kind


def render(
    profile: Profile,
    *,
    index: int | None = None,
    hide_idle: bool = False,
    limit: int | None = None,
    width: int | None,
    color: bool,
) -> str:
    """The largest rows in at most `width` columns; None: no limit.

    The profile's kind decides whether rows are operations or functions. A profile of an unknown
    kind has functions, and so has any profile with an `index`, which selects the value. With a
    `limit` there are no more rows, of one line each. `hide_idle` leaves out idle waits, and adds a
    line that says how much that is. Without `color` the text is plain ASCII. No text of the file
    reaches the terminal as a control character. Ends with a newline.
    """
    hidden, kind = "", find_kind(profile.kind)
    if kind and index is None:
        profile = kind.in_tables(profile)
    if hide_idle:
        profile, idle = split(profile)
        hidden = hidden_line(profile, idle, has_option=True, width=width)
        if hidden and not profile.samples:
            return f"All that was recorded is idle.\n{hidden}"
    if kind is None or index is not None:
        shown = default_index(profile) if index is None else index
        return functions.render(profile, index=shown, width=width, color=color) + hidden
    return _of_kind(profile, kind, limit=limit, width=width, color=color) + hidden


def hidden_line_of(profile: Profile, width: int | None) -> str:
    """The line with its newline that render() adds for `hide_idle`; "" without idle waits."""
    kind = find_kind(profile.kind)
    shown = kind.in_tables(profile) if kind else profile
    return hidden_line(shown, split(shown)[1], has_option=True, width=width)


def _of_kind(
    profile: Profile, kind: ProfileKind, *, limit: int | None, width: int | None, color: bool
) -> str:
    if kind.table.rows == "functions":
        if any(sample.values[-1] for sample in profile.samples):
            heading = kind.table.value
            most = {} if limit is None else {"limit": limit}
            return functions.render(
                profile, value_heading=heading, width=width, color=color, **most
            )
    elif profile.samples:
        render_rows = pairs.render if kind.table.waker else operations.render
        return render_rows(
            profile,
            table=kind.table,
            limit=limit or 10,
            is_short=limit is not None,
            width=width,
            color=color,
        )
    return f"Nothing was recorded: {kind.nothing}.\n"
