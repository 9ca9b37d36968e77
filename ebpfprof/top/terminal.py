"""The terminal as a screen: single keys, lines drawn over lines, everything undone at the end."""

from __future__ import annotations

import codecs
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import StringIO
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self

from ebpfprof.console.terminal import has_color

if TYPE_CHECKING:
    from rich.text import Text

_ENTER: Final = b"\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE: Final = b"\x1b[?25h\x1b[?1049l"
_LONE_ESCAPE_S: Final = 0.05  # a sequence that comes over a slow line may come in parts
_MAX_SEQUENCE: Final = 16
_CHUNK_BYTES: Final = 512
_STUCK_S: Final = 1.0
_RETRY_S: Final = 0.01
_NAMES: Final = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x03": "ctrl-c",
    "\x0c": "ctrl-l",
    "\x15": "ctrl-u",
}
# What follows "ESC [" or "ESC O" in xterm and in the terminals that imitate it.
_SEQUENCES: Final = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "H": "home",
    "F": "end",
    "1~": "home",
    "4~": "end",
    "5~": "pageup",
    "6~": "pagedown",
    "7~": "home",
    "8~": "end",
    "M": "enter",
}


class KeyReader:
    """Bytes from a terminal → the names of keys."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""

    @property
    def is_unfinished(self) -> bool:
        """Whether the last key may be the beginning of a sequence, or Escape alone."""
        return bool(self._text)

    def feed(self, data: bytes) -> list[str]:
        """The keys that are complete now: characters, and names for sequences that are known."""
        self._text += self._decoder.decode(data)
        keys = []
        while self._text:
            key, length = _first_key(self._text)
            if not length:
                break
            self._text = self._text[length:]
            if key:
                keys.append(key)
        return keys

    def give_up(self) -> list[str]:
        """Nothing more came: the rest was the key Escape."""
        rest, self._text = self._text, ""
        return ["escape"] if rest else []


def _first_key(text: str) -> tuple[str, int]:
    """The first key and its length: "" for an unknown sequence, length 0 for one cut short."""
    if text[0] != "\x1b":
        return _NAMES.get(text[0], text[0]), 1
    if len(text) == 1:
        return "", 0
    if text[1] not in "[O":
        return "escape", 1
    for end in range(2, min(len(text), _MAX_SEQUENCE)):
        if "@" <= text[end] <= "~":
            return _SEQUENCES.get(text[2 : end + 1], ""), end + 1
    return "", _MAX_SEQUENCE if len(text) >= _MAX_SEQUENCE else 0


class TopTerminal:
    """stdin and stdout as a screen. A context manager: leaving it restores the terminal.

    SIGTSTP suspends the process and SIGCONT brings the screen back. `wake()` ends a wait, as every
    signal does.
    """

    def __init__(self) -> None:
        self._stdin = sys.stdin.fileno()
        self._stdout = sys.stdout.fileno()
        self._screen = _opened_again(self._stdout)
        self._keys = KeyReader()
        self._saved: list[Any] | None = None  # the modes of the terminal as they were
        self._handlers: dict[int, Any] = {}
        self._is_to_suspend = self._was_continued = False
        self._wakeup_before = -1
        self._readable, self._writable = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.is_gone = False
        """Whether the terminal is gone: drawing has no effect."""

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines; 80 and 24 if the terminal doesn't tell."""
        try:
            columns, rows = os.get_terminal_size(self._stdout)
        except OSError:
            columns = rows = 0
        return columns or 80, rows or 24

    def __enter__(self) -> Self:
        try:
            self._wakeup_before = signal.set_wakeup_fd(self._writable, warn_on_full_buffer=False)
            self._handle(signal.SIGWINCH, lambda *_: None)  # it only has to end a wait
            self._handle(signal.SIGCONT, self._on_continue)
            if signal.getsignal(signal.SIGTSTP) != signal.SIG_IGN:
                self._handle(signal.SIGTSTP, self._on_suspend)
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        if self._screen is not None:
            os.close(self._screen)
        os.close(self._readable)
        os.close(self._writable)

    def wake(self) -> None:
        """End the wait for keys. May be called by any thread, while the context lasts."""
        with suppress(BlockingIOError):  # it is full: woken already
            os.write(self._writable, b"\0")

    def wait(self, timeout_s: float) -> list[str]:
        """The keys that were pressed, after at most so many seconds."""
        keys = self._read(timeout_s)
        if not keys and self._keys.is_unfinished:
            keys = self._read(_LONE_ESCAPE_S) or self._keys.give_up()
        if self._is_to_suspend:
            self._suspend()
        if self._was_continued:
            self._was_continued = False
            self._take()
        return keys

    def draw(self, lines: Sequence[Text]) -> None:
        """Draw the lines over what the screen shows. The caller makes them fit."""
        text = rendered(lines, self.size[0], color=has_color(sys.stdout))
        self._write(b"\x1b[H" + b"\x1b[K\r\n".join(_encoded(text)) + b"\x1b[K\x1b[J")

    def clear(self) -> None:
        """Clear the screen, also of what other programs wrote."""
        self._write(b"\x1b[2J")

    def _read(self, timeout_s: float) -> list[str]:
        ready, _, _ = select.select([self._stdin, self._readable], [], [], max(timeout_s, 0))
        if self._readable in ready:
            os.read(self._readable, 1 << 12)
        if self._stdin not in ready:
            return []
        try:
            data = os.read(self._stdin, 1 << 10)
        except OSError:
            data = b""
        self.is_gone = not data
        return self._keys.feed(data)

    def _take(self) -> None:
        now = termios.tcgetattr(self._stdin)
        if self._saved is None:
            self._saved = now
        raw = [*self._saved[:6], list(self._saved[6])]
        raw[0] &= ~(termios.ICRNL | termios.INLCR | termios.IXON)
        raw[3] &= ~(termios.ICANON | termios.ECHO)
        raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
        raw[6][termios.VQUIT] = b"\0"  # SIGQUIT would leave the terminal as it is
        termios.tcsetattr(self._stdin, termios.TCSANOW, raw)
        self._write(_ENTER)

    def _give_back(self) -> None:
        if self._saved is None:
            return
        saved, self._saved = self._saved, None
        try:
            self._write(_LEAVE)
        finally:
            try:
                termios.tcflush(self._stdin, termios.TCIFLUSH)
                termios.tcsetattr(self._stdin, termios.TCSANOW, saved)
            except termios.error:
                self.is_gone = True

    def _suspend(self) -> None:
        self._is_to_suspend = False
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)  # returns at SIGCONT
        signal.signal(signal.SIGTSTP, self._on_suspend)

    def _write(self, data: bytes) -> None:
        """Write all; give up where a terminal is stopped (Ctrl-S) or gone."""
        # All at once if that can't block: each call lets other threads run for some time.
        fd, most = (self._stdout, _CHUNK_BYTES) if self._screen is None else (self._screen, 1 << 16)
        stuck_s = time.monotonic() + _STUCK_S
        while data and time.monotonic() < stuck_s:
            if not select.select([], [fd], [], _STUCK_S)[1]:
                return
            try:
                written = os.write(fd, data[:most])
            except BlockingIOError:  # there may be room, but not for a whole line end
                time.sleep(_RETRY_S)
                continue
            except OSError:
                self.is_gone = True
                return
            data = data[written:]
            stuck_s = time.monotonic() + _STUCK_S

    def _handle(self, number: int, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handlers[number] = signal.signal(number, handler)

    def _on_suspend(self, number: int, frame: FrameType | None) -> None:
        self._is_to_suspend = True

    def _on_continue(self, number: int, frame: FrameType | None) -> None:
        self._was_continued = True


def _opened_again(terminal: int) -> int | None:
    """The terminal opened once more, without blocking; None if it can't be.

    Other processes share the file that is open already, and its flags with it.
    """
    flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(f"/proc/self/fd/{terminal}", flags)
    except OSError:
        return None


def rendered(lines: Sequence[Text], width: int, *, color: bool) -> list[str]:
    """The lines with escape sequences for their styles; without `color` for bold and the like.

    Without trailing newlines.
    """
    from rich.console import Console

    out = StringIO()
    console = Console(
        file=out,
        width=max(width, 1),
        force_terminal=True,
        color_system="standard",
        no_color=not color,
        highlight=False,
    )
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop", crop=True)
    return out.getvalue().split("\n")[:-1]


def plain(lines: Sequence[Text]) -> str:
    """The lines as text, without styles and trailing spaces; ends with a newline."""
    return "".join(f"{line.plain.rstrip()}\n" for line in lines)


def _encoded(lines: Sequence[str]) -> list[bytes]:
    encoding = sys.stdout.encoding or "ascii"
    return [line.encode(encoding, "backslashreplace") for line in lines]
