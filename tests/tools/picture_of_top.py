"""A picture of `ebpfprof top` for the docs: the demo service, looked at in a terminal.

    python -m tests.tools.picture_of_top [FILE]

As root. Writes docs/images/top.svg.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.kernel.programs import program
from tests.kernel.screens import screen
from tests.targets_run import Target
from tests.tools.terminal_picture import drawn

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "top.svg"
COLUMNS, ROWS = 112, 14
RECORDED_S = 20


def main() -> None:
    """Write the picture."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    with (
        Target.start(program("demo")) as demo,
        tempfile.TemporaryDirectory() as folder,
        screen(Path(folder), COLUMNS, ROWS, PYTHONPATH=str(ROOT)) as terminal,
    ):
        command = f"ebpfprof top --pid {demo.pid}"
        terminal.type(f"{sys.executable} -m {command} --profile block,mutex")
        terminal.wait_for(r"PriceCache\)\.Get +shop\.go")
        time.sleep(RECORDED_S)  # so that there is something to see
        seen = terminal.text("-e")
        terminal.press("q")
        terminal.wait_for(r"^shell> *\Z")
    path.write_text(drawn(seen, f"sudo {command}", COLUMNS))


if __name__ == "__main__":
    main()
