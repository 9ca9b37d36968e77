"""A picture of `ebpfprof attach` for the docs: the demo service, recorded in a terminal.

    python -m tests.tools.picture_of_attach [FILE]

As root. Writes docs/images/attach.svg.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.kernel.programs import program
from tests.kernel.screens import screen
from tests.targets_run import Target
from tests.tools.terminal_picture import drawn

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "attach.svg"
COLUMNS, ROWS = 100, 60
MOST_LINES = 34


def main() -> None:
    """Write the picture: of the command's output as much as fits."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with (
        Target.start(program("demo", mode="trimpath")) as demo,
        tempfile.TemporaryDirectory() as folder,
        screen(Path(folder), COLUMNS, ROWS, PYTHONPATH=str(ROOT)) as terminal,
    ):
        options = "--profile block,mutex --by-lock --duration 10 --max-overhead 0"
        command = f"ebpfprof attach --pid {demo.pid} {options}"
        terminal.type(f"clear; {sys.executable} -m {command}")
        terminal.wait_for(r"^shell> *\Z")
        seen = terminal.text("-e", "-S", "-").splitlines()
    begun = next(at for at, line in enumerate(seen) if "recording block" in line)
    path.write_text(drawn("\n".join(seen[begun:][:MOST_LINES]), f"sudo {command}", COLUMNS))


if __name__ == "__main__":
    main()
