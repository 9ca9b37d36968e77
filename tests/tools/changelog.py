"""Move the fragments of changes/ into a version's section of CHANGELOG.md.

python -m tests.tools.changelog 0.2.0            # with today's date
python -m tests.tools.changelog --check 0.2.0    # status 1 unless that has been done
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import date
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
KINDS: Final = ("added", "changed", "removed", "fixed", "security")
_WIDTH: Final = 132


class ChangelogError(Exception):
    """A fragment or the changelog is not as changes/README.md describes."""


def fragments(folder: Path) -> dict[str, list[Path]]:
    """The fragments of a folder by kind, in the order of KINDS; raises ChangelogError."""
    files = sorted(path for path in folder.iterdir() if path.name != "README.md")
    by_kind: dict[str, list[Path]] = {kind: [] for kind in KINDS}
    for path in files:
        match = re.fullmatch(r"[\w-]+\.(\w+)\.md", path.name)
        if not match or match[1] not in by_kind:
            raise ChangelogError(f"{path.name}: not NAME.KIND.md with KIND {', '.join(KINDS)}")
        if not path.read_text().strip():
            raise ChangelogError(f"{path.name} is empty")
        by_kind[match[1]].append(path)
    return {kind: paths for kind, paths in by_kind.items() if paths}


def entry(text: str) -> str:
    """A fragment as a bullet, wrapped."""
    lines, line = [], "-"
    for word in text.split():
        if len(line) + 1 + len(word) > _WIDTH:
            lines.append(line)
            line = " "
        line += f" {word}"
    return "\n".join([*lines, line])


def released(changelog: str, version: str, day: date, entries: dict[str, list[str]]) -> str:
    """The changelog with the entries in the section of the version, which is made if missing."""
    heading = f"## {version} ({day.isoformat()})"
    blocks = [
        f"### {kind.capitalize()}\n\n" + "\n".join(entry(text) for text in texts)
        for kind, texts in entries.items()
    ]
    own = re.search(rf"^## {re.escape(version)}\b.*$", changelog, re.MULTILINE)
    if not own:
        before, mark, after = changelog.partition("\n## ")
        section = "\n\n".join([heading, *blocks])
        return f"{before}\n{section}\n{mark}{after}"
    following = changelog.find("\n## ", own.end())
    end = len(changelog) if following < 0 else following
    section = "\n\n".join([heading + changelog[own.end() : end].rstrip(), *blocks])
    return changelog[: own.start()] + section + "\n" + changelog[end:]


def is_released(changelog: str, version: str) -> bool:
    """Whether the version has a section with a date."""
    pattern = rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$"
    return re.search(pattern, changelog, re.MULTILINE) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("version")
    options = parser.parse_args()
    file = ROOT / "CHANGELOG.md"
    try:
        by_kind = fragments(ROOT / "changes")
    except ChangelogError as error:
        print(f"changelog: {error}", file=sys.stderr)
        return 1
    paths = [path for group in by_kind.values() for path in group]
    if options.check:
        if paths or not is_released(file.read_text(), options.version):
            print(
                f"changelog: run python -m tests.tools.changelog {options.version} first",
                file=sys.stderr,
            )
            return 1
        return 0
    entries = {kind: [path.read_text() for path in group] for kind, group in by_kind.items()}
    file.write_text(released(file.read_text(), options.version, date.today(), entries))
    for path in paths:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
