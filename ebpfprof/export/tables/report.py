"""A profile as text for people: what it is, its table, what was hidden and what was lost."""

from ebpfprof.console.text import duration, printable
from ebpfprof.export.json_profile import title
from ebpfprof.export.tables import cpu, functions
from ebpfprof.export.tables import waits as summary
from ebpfprof.profile.idle import split
from ebpfprof.profile.model import Profile

_MAX_COMMENTS = 32
_MAX_COMMENT = 1024


def encode(profile: Profile, *, index: int | None = None, hide_idle: bool = False) -> bytes:
    """The text of render() in ASCII, as wide as it takes, as a file."""
    return render(profile, index=index, hide_idle=hide_idle, width=None, color=False).encode()


def render(
    profile: Profile,
    *,
    index: int | None = None,
    hide_idle: bool = False,
    width: int | None,
    color: bool,
) -> str:
    """The profile in at most `width` columns, None for as many as it takes.

    `index` chooses a value type by which functions are listed; without it, waits are listed by
    operation and caller, and any other profile by the functions of its last type. Nothing that
    the file says reaches the terminal as a control character. Ends with a newline.
    """
    lines = [_heading(profile, ascii_only=not color)]
    hidden = ""
    if hide_idle:
        profile, waits = split(profile)
        hidden = summary.hidden_line(waits)
    if index is None and profile.kind == "cpu":
        table = cpu.render(profile, width=width, color=color)
    elif index is None and profile.kind:
        table = summary.render(profile, width=width, color=color)
    else:
        table = functions.render(
            profile, index=-1 if index is None else index, width=width, color=color
        )
    comments = [
        printable(comment[:_MAX_COMMENT], ascii_only=not color) + "\n"
        for comment in profile.comments[:_MAX_COMMENTS]
    ]
    return "".join([*lines, table, hidden, *(["\n"] if comments else []), *comments])


def _heading(profile: Profile, *, ascii_only: bool) -> str:
    length = f" in {duration(profile.duration_ns)}" if profile.duration_ns > 0 else ""
    return printable(f"{title(profile)}{length}:", ascii_only=ascii_only) + "\n"
