"""Files of unknown size, read up to a bound."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from ebpfprof.system.bounded_file import read_bounded


@pytest.mark.parametrize("size", [0, 1, 1 << 14, (1 << 14) + 1, 100_000])
def test_a_file_is_read_up_to_the_bound(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "file").write_bytes(content[:size])
    assert read_bounded(str(tmp_path / "file"), 1 << 20) == content[:size]
    assert read_bounded(str(tmp_path / "file"), 50_000) == content[: min(size, 50_000)]


def test_the_bound_itself_takes_no_memory() -> None:
    """Buffered reads allocate all of it, which takes longer than to read a file of /proc."""
    tracemalloc.start()
    try:
        assert read_bounded("/proc/self/stat", 1 << 26)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bounded(str(tmp_path / "file"), 10)
