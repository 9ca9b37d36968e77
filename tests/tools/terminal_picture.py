"""A picture of what a terminal shows, as SVG."""

from __future__ import annotations

import re
from io import StringIO

from rich.console import Console
from rich.text import Text

# The fonts would be fetched from elsewhere; the reader's own do.
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def drawn(seen: str, title: str, columns: int) -> str:
    """The picture of a screen that is so wide; `seen` may have colours as escape sequences."""
    console = Console(width=columns, record=True, file=StringIO(), legacy_windows=False)
    console.print(Text.from_ansi(seen), no_wrap=True, overflow="crop", crop=True)
    svg = console.export_svg(title=title, unique_id="terminal")
    lines = _FONTS.sub("", svg).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)
