"""Names of the output file: those that cannot be, and the default name."""

import os
import time
from pathlib import Path

import pytest

from ebpfprof.console.output_file import OutputFile, default_name
from ebpfprof.errors import OutputError

WHEN = time.struct_time((2026, 8, 7, 9, 5, 3, 4, 219, 1))
UNUSABLE = {
    "no such directory": ("missing/x", "No such file or directory"),
    "file as directory": ("file/x", "Not a directory"),
    "name too long": ("n" * 256, "File name too long"),
    "empty name": (".", "is a directory"),
    "parent": ("..", "is a directory"),
    "root": ("/", "is a directory"),
    "NUL in the name": ("a\0b", r"x00b: embedded null byte"),
    "NUL in the directory": ("a\0b/c", r"a\\x00b/c: embedded null byte"),
    "escape sequence": ("\x1b[2J/x", r"\\x1b\[2J/x: No such file"),
}


@pytest.mark.parametrize(("path", "complaint"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_unusable_paths_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(OutputError, match=complaint):
        OutputFile.prepare(Path(path))
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("api", "api-7.block.pb.gz"),
        ("../../etc/x", "_.._etc_x-7.block.pb.gz"),
        ("-rf", "rf-7.block.pb.gz"),
        (".hidden", "hidden-7.block.pb.gz"),
        ("a b\n\x1b[31m", "a_b___31m-7.block.pb.gz"),
        ("größe", "gr__e-7.block.pb.gz"),
        ("...", "process-7.block.pb.gz"),
        ("", "process-7.block.pb.gz"),
        ("n" * 500, "n" * 64 + "-7.block.pb.gz"),
    ],
)
def test_the_name_made_from_the_targets_command_is_harmless(command: str, name: str) -> None:
    assert default_name(command, 7, "block", WHEN) == name.replace("-7.", "-7-20260807-090503.")


def test_default_names_sort_by_local_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "IST-5:30")
    time.tzset()
    try:
        names = [default_name("api", 7, "cpu", time.localtime(at)) for at in (0, 9 * 3600, 86400)]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert names == sorted(names)
    assert names[0] == "api-7-19700101-053000.cpu.pb.gz"


def test_recordings_of_the_same_second_are_numbered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that were prepared when the name was still free."""
    monkeypatch.chdir(tmp_path)
    name = Path(default_name("api", 7, "block", WHEN, ".html"))
    files = [OutputFile.prepare(name, suffix=".html", if_taken="number") for _ in range(3)]
    Path("api-7-20260807-090503.block-2.html").symlink_to("nowhere")
    for number, file in enumerate(files):
        file.commit(str(number).encode())
    names = [f"api-7-20260807-090503.block{number}.html" for number in ("", "-3", "-4")]
    assert [file.name for file in files] == names
    assert [Path(each).read_text() for each in names] == ["0", "1", "2"]
    assert len(os.listdir()) == 4
