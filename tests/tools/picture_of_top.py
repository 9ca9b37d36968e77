"""A picture of `ebpfprof top` for the docs: the demo service, looked at in a terminal.

    python -m tests.tools.picture_of_top [FILE]

As root. Writes docs/images/top.svg.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.kernel.programs import program
from tests.kernel.screens import screen
from tests.targets_run import Target

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "top.svg"
COLUMNS, ROWS = 112, 14
RECORDED_S = 20
# The fonts would be fetched from elsewhere; the reader's own do.
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


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
    path.write_text(drawn(seen, command))


def drawn(seen: str, title: str) -> str:
    """The screen as SVG."""
    console = Console(width=COLUMNS, record=True, file=StringIO(), legacy_windows=False)
    console.print(Text.from_ansi(seen), no_wrap=True, overflow="crop", crop=True)
    svg = console.export_svg(title=f"sudo {title}", unique_id="top")
    lines = FONTS.sub("", svg).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


if __name__ == "__main__":
    main()
