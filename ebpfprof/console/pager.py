"""Long text in a pager, as git shows it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from ebpfprof.console.terminal import is_terminal, say

_PAGER: Final = "less"
# What git gives to less: end if the text fits, show colours, leave the text on the screen.
_LESS: Final = "FRX"
_NO_PAGERS: Final = ("", "cat")


@contextmanager
def paged(*, is_wanted: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows text, which ends with a newline, on standard output.

    Where that is a terminal, and the text of the whole block has more lines, it is shown by $PAGER,
    or by less, at the end of the block. Raises OutputError as say() does.
    """
    command = _command() if is_wanted and is_terminal(sys.stdout) and sys.stdin.isatty() else []
    if not command:
        yield lambda text: say(text, end="")
        return
    parts: list[str] = []
    yield parts.append
    text = "".join(parts)
    if text.count("\n") < _rows() or not _show(command, text):
        say(text, end="")


def _command() -> list[str]:
    """The pager's words, [] for none.

    With sudo it is always less: what a user's environment names would run with root's rights.
    """
    chosen = _PAGER if "SUDO_UID" in os.environ else os.environ.get("PAGER", _PAGER)
    try:
        words = shlex.split(chosen)
    except ValueError:
        return [_PAGER]
    return [] if " ".join(words) in _NO_PAGERS else words


def _rows() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).lines
    except OSError:
        return 0


def _show(command: list[str], text: str) -> bool:
    """Have the pager show it; False if it could not be started."""
    environment = {
        **os.environ,
        "LESS": os.environ.get("LESS", _LESS),
        "LESSSECURE": "1",  # it may run as root: no shell, no files
    }
    try:
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    except OSError:
        return False
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pager
    try:
        assert pager.stdin
        encoding = sys.stdout.encoding or "ascii"
        with suppress(BrokenPipeError):  # people may leave before the end
            pager.stdin.write(text.encode(encoding, "backslashreplace"))
        with suppress(BrokenPipeError):  # what was left to write
            pager.stdin.close()
        pager.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return True
