"""A profile as text: its title, its largest rows, hidden waits, and its comments."""

from ebpfprof.console.text import duration, printable
from ebpfprof.export.kinds import title
from ebpfprof.export.tables import handlers, largest
from ebpfprof.export.tables.finding import finding, summary
from ebpfprof.profile.model import Profile

_MAX_COMMENTS = 32
_MAX_COMMENT = 1024


def encode(
    profile: Profile,
    *,
    index: int | None = None,
    hide_idle: bool = False,
    by_handler: bool = False,
) -> bytes:
    """The text of render() for a file: ASCII, of unlimited width."""
    text = render(
        profile,
        index=index,
        hide_idle=hide_idle,
        by_handler=by_handler,
        width=None,
        color=False,
    )
    return text.encode()


def render(
    profile: Profile,
    *,
    index: int | None = None,
    hide_idle: bool = False,
    by_handler: bool = False,
    width: int | None,
    color: bool,
) -> str:
    """The table of largest.render(), below a sentence and the title, above the comments.

    With `by_handler` the table of handlers.render() instead.

    The sentence is about the values that the profile's kind shows: there is none with an `index`,
    nor without samples.
    """
    length = f" in {duration(profile.duration_ns)}" if profile.duration_ns > 0 else ""
    heading = printable(f"{title(profile)}{length}:", ascii_only=not color)
    render_rows = handlers.render if by_handler else largest.render
    table = render_rows(profile, index=index, hide_idle=hide_idle, width=width, color=color)
    has_sentence = index is None and profile.samples
    sentence = (finding(profile) or summary(profile)) if has_sentence else ""
    first = f"{printable(sentence, ascii_only=not color)}\n\n" if sentence else ""
    comments = [
        printable(comment[:_MAX_COMMENT], ascii_only=not color) + "\n"
        for comment in profile.comments[:_MAX_COMMENTS]
    ]
    return "".join([first, heading, "\n", table, *(["\n"] if comments else []), *comments])
