"""What draws the live table of `ebpfprof top` on the terminal."""

from __future__ import annotations

import os
from contextlib import suppress
from io import TextIOWrapper
from typing import cast

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver


class _Stdout:
    """The terminal as a file; what can't be written because the terminal is gone is dropped.

    Textual's thread would end at an error, and the main thread wait for it forever.
    """

    def write(self, text: str) -> None:
        """Write all of it."""
        data = text.encode("utf-8", "backslashreplace")
        with suppress(OSError):  # the terminal is gone: see above
            while data:
                data = data[os.write(self.fileno(), data) :]

    def flush(self) -> None:
        """Do nothing: it is written."""

    def fileno(self) -> int:
        """That of stdout."""
        return 1


class StdoutDriver(LinuxDriver):
    """Draws on stdout: textual itself draws on stderr, which a user may well write to a file."""

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file = cast("TextIOWrapper", _Stdout())
