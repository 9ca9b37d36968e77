"""A terminal with a shell in it (tmux), to use programs as a person does."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import psutil

from tests.targets_run import SLOWNESS

DEADLINE_S = 60.0 * SLOWNESS
_POLL_S = 0.05


class Screen:
    """A terminal of its own, apart from any other tmux."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.folder = socket.parent
        """Where its shell began."""

    def open(self, folder: Path, columns: int, rows: int, env: dict[str, str]) -> None:
        """Begin a shell in a folder, with `env` added to its environment."""
        self.folder = folder
        size = ("-x", str(columns), "-y", str(rows))
        given = [f"-e{name}={value}" for name, value in env.items()]
        shell = ("bash", "--norc", "--noprofile")
        self._tmux("-f", "/dev/null", "new-session", "-d", "-c", str(folder), *size, *given, *shell)
        # What is watched is the pane: no line of tmux's own below it.
        self._tmux("set-option", "-g", "status", "off")
        self.type("PS1='shell> '; clear")
        self.wait_for(r"\Ashell> *\Z")

    def type(self, line: str) -> None:
        """A line, with Enter behind it."""
        self.type_text(line)
        self.press("Enter")

    def type_text(self, text: str) -> None:
        """Characters that stand for themselves, all at once."""
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        """Keys by the names that tmux gives them, all at once; others stand for themselves."""
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        """Make the window larger or smaller."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def text(self, *options: str) -> str:
        """What is seen, without the empty lines at the end; `options` are tmux capture-pane's."""
        return self._tmux("capture-pane", "-p", *options).rstrip()

    @property
    def history(self) -> str:
        """The same with what was scrolled off; lines that were too wide are whole again."""
        return self.text("-J", "-S", "-")

    @property
    def modes(self) -> str:
        """Whether the second screen is shown, and whether the cursor is."""
        return self._tmux(
            "display-message", "-p", "second #{alternate_on} cursor #{cursor_flag}"
        ).strip()

    @property
    def title(self) -> str:
        """What programs have called the window: an escape sequence does that."""
        return self._shown("#{pane_title}")

    @property
    def programs(self) -> list[psutil.Process]:
        """What the shell started and what still runs."""
        return psutil.Process(int(self._shown("#{pane_pid}"))).children()

    def wait_for(self, *patterns: str, without: str | None = None) -> str:
        """What is seen once all the patterns are found in it at the same time, and `without` isn't.

        It fails if that doesn't come in time. A screen may be seen half drawn: what is to be true
        of one moment belongs into one call.
        """
        deadline = monotonic() + DEADLINE_S
        while True:
            text = self.text()
            missing = [
                pattern for pattern in patterns if not re.search(pattern, text, re.MULTILINE)
            ]
            is_wrong = without is not None and re.search(without, text, re.MULTILINE)
            if not (missing or is_wrong):
                return text
            if monotonic() > deadline:
                left = f"; {without!r} did not go" if is_wrong else ""
                raise AssertionError(f"{missing} did not appear{left}:\n{text}")
            sleep(_POLL_S)

    def close(self) -> None:
        """Close the window, as a user may."""
        self._tmux("kill-server")

    def _shown(self, of: str) -> str:
        return self._tmux("display-message", "-p", of).strip()

    def _tmux(self, *arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", str(self._socket), *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"tmux {arguments[0]}: {done.stderr}"
        return done.stdout


@contextmanager
def screen(folder: Path, columns: int = 100, rows: int = 30, **env: str) -> Iterator[Screen]:
    """A terminal of that size, closed at the end."""
    # tmux leaves its socket behind.
    with tempfile.TemporaryDirectory(prefix="ebpfprof-screen-") as name:
        shown = Screen(Path(name) / "socket")
        try:
            shown.open(folder, columns, rows, env)
            yield shown
        finally:
            shown.close()
