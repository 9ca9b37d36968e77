"""Folders for output files, and both ways to write one."""

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(params=["nameless", "named"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs with O_TMPFILE, and as if the file system did not know it."""
    if request.param == "named":
        real = os.open

        def without_tmpfile(
            path: str | Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
        ) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            return real(path, flags, mode, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", without_tmpfile)


@pytest.fixture
def no_descriptor_leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Also the working directory and the temporary one are the test's own."""
    (tmp_path / "cwd").mkdir()
    (tmp_path / "temp").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "out"
    made.mkdir()
    return made
