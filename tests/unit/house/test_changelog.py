"""The changelog and its fragments."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from ebpfprof import __version__
from tests.tools.changelog import (
    ROOT,
    ChangelogError,
    entry,
    fragments,
    is_released,
    released,
)

BEFORE = "# Changelog\n\n## 0.1.0 (2026-01-02)\n\n- The first.\n"
DAY = date(2026, 12, 1)


def test_fragments_of_this_repository_are_well_named() -> None:
    fragments(ROOT / "changes")


def test_the_changelog_has_a_section_for_this_version() -> None:
    assert f"\n## {__version__} (" in (ROOT / "CHANGELOG.md").read_text()


def test_a_new_version_comes_first() -> None:
    text = released(BEFORE, "0.2.0", DAY, {"added": ["A column.\n"], "fixed": ["A bug.\n"]})
    assert text == (
        "# Changelog\n\n## 0.2.0 (2026-12-01)\n\n### Added\n\n- A column.\n\n"
        "### Fixed\n\n- A bug.\n\n## 0.1.0 (2026-01-02)\n\n- The first.\n"
    )


def test_a_section_that_is_there_gets_entries_and_date() -> None:
    unreleased = BEFORE.replace("2026-01-02", "unreleased")
    text = released(unreleased, "0.1.0", DAY, {"changed": ["Words."]})
    assert text == (
        "# Changelog\n\n## 0.1.0 (2026-12-01)\n\n- The first.\n\n### Changed\n\n- Words.\n"
    )
    assert is_released(text, "0.1.0")
    assert not is_released(unreleased, "0.1.0")
    assert not is_released(text, "0.1")


def test_long_entries_wrap_behind_the_bullet() -> None:
    lines = entry("word " * 60).splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 132 for line in lines)
    assert lines[0].startswith("- word")
    assert all(line.startswith("  word") for line in lines[1:])


@pytest.mark.parametrize("name", ["list.md", "list.new.md", "list.added.txt"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("A column.\n")
    with pytest.raises(ChangelogError, match=name):
        fragments(tmp_path)


def test_an_empty_fragment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.added.md").write_text("\n")
    with pytest.raises(ChangelogError, match="empty"):
        fragments(tmp_path)
