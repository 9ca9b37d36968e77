"""Which source files are read for a profile: below the folders that were named, and no others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ebpfprof.process.source_files import SourceError, SourceFiles, candidates, near

TEXT = "".join(f"line {number}\n" for number in range(1, 41))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "shop"
    (path / "api").mkdir(parents=True)
    (path / "api" / "api.go").write_text(TEXT)
    (tmp_path / "outside.go").write_text("outside\n")
    return path


@pytest.fixture
def files(folder: Path) -> Iterator[SourceFiles]:
    with SourceFiles([str(folder)]) as opened:
        yield opened


def test_lines_that_are_named_are_read_with_some_around_them(
    files: SourceFiles, folder: Path
) -> None:
    text = files.read(str(folder / "api/api.go"), {3, 30})
    assert text.path == str(folder / "api/api.go")
    assert sorted(text.lines) == [*range(1, 12), *range(22, 39)]
    assert text.lines[30] == "line 30"
    assert text.changed_ns == (folder / "api/api.go").stat().st_mtime_ns
    assert text.as_json(text.changed_ns)["changed"] is False
    assert text.as_json(text.changed_ns - 1)["changed"] is True


@pytest.mark.parametrize(
    "file",
    [
        "/build/shop/api/api.go",
        "shop/api/api.go",
        "/pkg/mod/x/shop@v1.2.3/api/api.go",
        "api/api.go",
    ],
)
def test_a_file_that_was_built_elsewhere_is_found(files: SourceFiles, file: str) -> None:
    assert files.read(file, {1}).lines[1] == "line 1"


@pytest.mark.parametrize(
    "file",
    [
        "/etc/passwd",
        "/etc/passwd.go",
        "api.go",
        "/x/api.go",
        "shop/../outside.go",
        "../outside.go",
        "api/api.go\0",
        "",
        "shop",
        "/build/shop",
    ],
)
def test_no_other_file_is_read(files: SourceFiles, folder: Path, file: str) -> None:
    for path in (file, f"{folder}/{file}" if file.startswith("..") else file):
        if path:
            with pytest.raises(SourceError):
                files.read(path, {1})
    outside = folder.parent / "outside.go"
    with pytest.raises(SourceError, match="no such file below"):
        files.read(str(outside), {1})


def test_no_link_is_followed(files: SourceFiles, folder: Path) -> None:
    (folder / "link.go").symlink_to(folder.parent / "outside.go")
    (folder / "inside.go").symlink_to("api/api.go")
    (folder / "sub").symlink_to(folder.parent)
    for name in ("link.go", "inside.go", "sub/outside.go"):
        with pytest.raises(SourceError, match="no such file below"):
            files.read(str(folder / name), {1})


def test_only_regular_files_with_the_suffix_of_a_source_file_are_read(
    files: SourceFiles, folder: Path
) -> None:
    (folder / "id_rsa").write_text("secret\n")
    (folder / "key.pem").write_text("secret\n")
    os.mkfifo(folder / "fifo.go")  # opening it would wait for ever
    (folder / "folder.go").mkdir()
    for name in ("id_rsa", "key.pem"):
        with pytest.raises(SourceError, match="Not a source file name"):
            files.read(str(folder / name), {1})
    for name in ("fifo.go", "folder.go"):
        with pytest.raises(SourceError, match="no such file"):
            files.read(str(folder / name), {1})


def test_a_large_file_is_refused(files: SourceFiles, folder: Path) -> None:
    with (folder / "large.go").open("wb") as large:
        large.truncate((4 << 20) + 1)
    with pytest.raises(SourceError, match="larger than 4 MiB"):
        files.read(str(folder / "large.go"), {1})


def test_a_folder_that_cannot_be_opened_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"Cannot open .*gone, which --source names: No such"):
        SourceFiles([str(tmp_path / "gone")])


@pytest.mark.machine
def test_files_are_read_with_the_rights_of_who_typed_sudo(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert os.geteuid() == 0, "only root can give rights up"
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    for parent in folder.parents:
        if parent.stat().st_mode & 0o5 != 0o5 and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o5)
    own = folder / "own.go"
    own.write_text("for root\n")
    own.chmod(0o600)
    folder.chmod(0o755)
    (folder / "api").chmod(0o755)
    with SourceFiles([str(folder)]) as files:
        assert files.read(str(folder / "api/api.go"), {1}).lines[1] == "line 1"
        with pytest.raises(SourceError, match="that you may read"):
            files.read(str(own), {1})
    folder.chmod(0o700)
    with (
        pytest.raises(SourceError, match="no such file below"),
        SourceFiles([str(folder)]) as files,
    ):
        files.read(str(folder / "api/api.go"), {1})


def test_lines_are_those_of_an_editor() -> None:
    data = b"a\r\nb\xff\n\xe2\x80\xa8c\n" + b"d" * 1000
    assert near(data, {1, 4, 99, 0, -5}) == [
        (1, "a"),
        (2, "b\ufffd"),
        (3, "\u2028c"),
        (4, "d" * 400),
    ]


def test_the_likeliest_place_comes_first() -> None:
    assert list(candidates("/src/shop/shop/a.go", "/src/shop")) == ["shop/a.go", "a.go"]
    assert list(candidates("x/shop/a.go", "/src/shop")) == ["x/shop/a.go", "a.go"]
    assert list(candidates("/src/other/a.go", "/src/shop")) == []
    assert list(candidates("a.go", "/")) == ["a.go"]
