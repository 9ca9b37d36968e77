"""Output to the user: lines on stdout and stderr, their width, a progress bar."""

import errno
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, AnyStr, TextIO

from ebpfprof.console.text import wrapped
from ebpfprof.errors import OutputError
from ebpfprof.system.signals import interruptible

_MAX_BAR = 40
_ERASE_LINE = "\r\x1b[K"


def say(text: str, *, err: bool = False, end: str = "\n", wraps: bool | None = None) -> None:
    """Print to stdout or stderr; a pipe without a reader (`| head`) is no error.

    On a terminal, text that `wraps` is wrapped at words; None: text for stderr is, since sentences
    go there. Commands to type, which are indented, stay whole. Raises OutputError if writing to
    stdout fails for another reason, such as a full disk.
    """
    stream = sys.stderr if err else sys.stdout
    if stream is None:  # it was closed when we were started
        return
    if (err if wraps is None else wraps) and (columns := width(stream)):
        text = wrapped(text, columns)
    encoding = stream.encoding or "ascii"
    try:
        shown = text.encode(encoding, "backslashreplace").decode(encoding) + end
        if err:
            _write(stream, shown)
        else:
            interruptible(lambda: _write(stream, shown))
    except OSError as error:
        _silence(stream)
        if not err:
            _raise_unless_unread(error)


def write_bytes(data: bytes) -> None:
    """Write bytes for a program to stdout, unchanged; errors are as those of say()."""
    if sys.stdout is None:
        return
    try:
        interruptible(lambda: _write(sys.stdout.buffer, data))
    except OSError as error:
        _silence(sys.stdout)
        _raise_unless_unread(error)


def _write(stream: IO[AnyStr], what: AnyStr) -> None:
    """Write and flush all of it, however long the reader takes."""
    try:
        stream.write(what)
        stream.flush()
    except KeyboardInterrupt:  # at exit Python would flush the rest, and wait for the reader again
        _silence(stream)
        raise


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal that knows escape sequences."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def has_color(stream: TextIO | None) -> bool:
    """Whether to write to the stream in colour (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def width(stream: TextIO | None) -> int | None:
    """Columns of the terminal behind the stream; None if it is not one, or has no size."""
    return _size(stream).columns or None


def height(stream: TextIO | None) -> int | None:
    """Lines of the terminal behind the stream; None if it is not one, or has no size."""
    return _size(stream).lines or None


def _size(stream: TextIO | None) -> os.terminal_size:
    """That of the terminal behind the stream, in zeros if it is not one, or has no size."""
    if stream is None or not stream.isatty():
        return os.terminal_size((0, 0))
    try:
        return os.get_terminal_size(stream.fileno())
    except OSError:
        return os.terminal_size((0, 0))


@contextmanager
def progress(duration_s: float, *, is_shown: bool = True) -> Iterator[Callable[[float], None]]:
    """Yield a function to call with the seconds gone: it draws a bar if stderr is a terminal.

    Of a duration without an end (inf), it draws the seconds only. Without `is_shown` it draws none.
    """
    if not is_shown or not is_terminal(sys.stderr):
        yield lambda gone_s: None
        return
    drawn = ""

    def draw(gone_s: float) -> None:
        nonlocal drawn
        line = _bar(gone_s, duration_s, width(sys.stderr) or _MAX_BAR)
        if line != drawn:
            say(_ERASE_LINE + line, err=True, end="")
            drawn = line

    try:
        yield draw
    finally:
        say(_ERASE_LINE, err=True, end="")


def erase_progress() -> None:
    """Make room for a message where progress() draws; it draws again."""
    if is_terminal(sys.stderr):
        say(_ERASE_LINE, err=True, end="")


@contextmanager
def working(text: str, *, is_shown: bool = True) -> Iterator[None]:
    """Show what takes a while, in a line that is erased at the end, if stderr is a terminal."""
    if not is_shown or not is_terminal(sys.stderr):
        yield
        return
    say(_ERASE_LINE + text[: (width(sys.stderr) or _MAX_BAR) - 1], err=True, end="")
    try:
        yield
    finally:
        say(_ERASE_LINE, err=True, end="")


def _bar(gone_s: float, duration_s: float, columns: int) -> str:
    if math.isinf(duration_s):
        return f"{int(gone_s)} s"[: columns - 1]
    left_s = max(math.ceil(duration_s - gone_s), 0)
    times = f" {int(gone_s)} of {duration_s:g} s, {left_s} s left"
    # Two brackets, and the last column stays free: some terminals would begin a new line.
    room = min(_MAX_BAR, columns - len(times) - 3)
    if room < 1:
        return times[: columns - 1]
    done = int(room * min(gone_s / duration_s, 1.0))
    return f"[{'#' * done}{'.' * (room - done)}]{times}"


def _raise_unless_unread(error: OSError) -> None:
    if error.errno != errno.EPIPE:
        raise OutputError(
            f"Standard output could not be written to: {error.strerror}. The profiles are not "
            "affected."
        ) from error


def _silence(stream: IO[AnyStr]) -> None:
    """Discard all further output, and the flush at exit."""
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(null, stream.fileno())
    os.close(null)
