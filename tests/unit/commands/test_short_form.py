"""How much of a recording a terminal has room for."""

from __future__ import annotations

import pytest

from ebpfprof.commands.short_form import rows_that_fit, written

NAME = "shop-7-20261125-161120"


@pytest.mark.parametrize(
    ("lines", "tables", "rows"), [(24, 3, 2), (24, 1, 10), (40, 3, 8), (10, 3, 1), (1000, 1, 10)]
)
def test_rows_share_what_is_left(lines: int, tables: int, rows: int) -> None:
    assert rows_that_fit(lines, 80, ["Written", "Next", "Or", "lost"], tables) == rows


def test_a_long_sentence_takes_more_lines() -> None:
    assert rows_that_fit(24, 80, ["x" * 81, "", "y"], 1) == rows_that_fit(24, 80, ["z"] * 4, 1)


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([f"{NAME}.block.pb.gz"], f"{NAME}.block.pb.gz"),
        ([f"{NAME}.block.pb.gz", f"{NAME}.cpu.pb.gz"], f"{NAME}.{{block,cpu}}.pb.gz"),
        ([f"a.b-{NAME}.block.html", f"a.b-{NAME}.cpu.html"], f"a.b-{NAME}.{{block,cpu}}.html"),
        ([f"x y-{NAME}.block.html", f"x y-{NAME}.cpu.html"], None),
        ([f"{NAME}.block.pb.gz", "other-8-20261125-161120.block.pb.gz"], None),
        (["mine.pb.gz", "yours.pb.gz"], None),
    ],
)
def test_files_of_one_recording_are_named_together(names: list[str], shown: str | None) -> None:
    assert written(names) == (shown or "\n".join(names))
