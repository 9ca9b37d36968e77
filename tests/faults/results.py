"""The document with the results of explain: a section for each set of programs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from platform import release
from typing import Final

_HEAD: Final = """\
# Results of explain

`python -m tests.faults.run --output` writes a section of this file, [explain](explain.md) has the
design. "Planted" is the kind of finding that must come first.
"""
_SECTION: Final = re.compile(r"^## (.+)$", re.MULTILINE)


def write_section(path: Path, title: str, text: str) -> None:
    """Write a section of the document. The others stay; it is made if it is not there."""
    sections = _sections(path.read_text()) if path.exists() else {}
    day = datetime.now(UTC).date().isoformat()
    sections[title] = f"{day}, Linux {release()}.\n\n{text}"
    parts = [f"## {heading}\n\n{sections[heading]}\n" for heading in sorted(sections)]
    path.write_text("\n".join((_HEAD, *parts)))


def _sections(document: str) -> dict[str, str]:
    """The texts of the sections, by their titles."""
    _, *rest = _SECTION.split(document)
    return {title: text.strip() for title, text in zip(rest[::2], rest[1::2], strict=True)}
