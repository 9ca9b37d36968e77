"""A profile as text for people: what it is, its largest rows, what was hidden and what was lost."""

from ebpfprof.console.text import duration, printable
from ebpfprof.export.kinds import title
from ebpfprof.export.tables import largest
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
    """The table of largest.render() with a line above that says what it is, and comments below."""
    length = f" in {duration(profile.duration_ns)}" if profile.duration_ns > 0 else ""
    heading = printable(f"{title(profile)}{length}:", ascii_only=not color)
    table = largest.render(profile, index=index, hide_idle=hide_idle, width=width, color=color)
    comments = [
        printable(comment[:_MAX_COMMENT], ascii_only=not color) + "\n"
        for comment in profile.comments[:_MAX_COMMENTS]
    ]
    return "".join([heading, "\n", table, *(["\n"] if comments else []), *comments])
