"""The cache of compiled programs: its users, its keys, and files that it ignores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from ebpfprof.errors import KernelUnsupported
from ebpfprof.kernel import btf, compiler, program_cache, program_source
from ebpfprof.kernel.compiler import Compilation
from ebpfprof.kernel.program_source import Compiled, ProgramSource
from ebpfprof.kernel.sources import bpf_folder
from tests.builds import in_full
from tests.kernel.mounts import mounted
from tests.kernel.programs import program
from tests.kernel.users import NOBODY, anybodys_folder
from tests.recorder import run
from tests.targets_run import Target

TEXT = """
BPF_ARRAY(numbers, u64, 4);
int nothing(struct pt_regs *ctx) { int at = NUMBER; return numbers.lookup(&at) != 0; }
int more(struct pt_regs *ctx) { return 1; }
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(program_cache, "FOLDER", tmp_path / "cache")
    monkeypatch.setattr(program_source, "program_text", lambda name: TEXT)
    return tmp_path / "cache"


def compiled(number: int = 1, functions: tuple[str, ...] = ("nothing",)) -> tuple[Compiled, bool]:
    """What becomes of the text, and whether it took a compiler."""
    before = psutil.Process().children()
    compilation = Compilation(ProgramSource("test.bpf.c", {"NUMBER": number}, functions))
    is_new = len(psutil.Process().children()) > len(before)
    try:
        return compilation.result(), is_new
    finally:
        compilation.close()


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_the_same_program_is_compiled_once(folder: Path) -> None:
    first, is_new = compiled()
    assert is_new
    again, is_new = compiled()
    assert (again, is_new) == (first, False)
    assert list(first.functions) == ["nothing"]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert only_file(folder).stat().st_mode & 0o777 == 0o600


def test_other_programs_do_not_use_the_cached_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiled()
    assert compiled(2)[1]
    assert compiled(1, ("nothing", "more"))[1]
    monkeypatch.setattr(program_source, "program_text", lambda name: TEXT + "\n")
    assert compiled()[1]
    booted = os.uname()
    other = os.uname_result((*booted[:2], "9.9.9", *booted[3:]))
    monkeypatch.setattr(os, "uname", lambda: other)
    assert compiled()[1]
    assert not compiled()[1]
    headers = tmp_path / "headers"
    subprocess.run(["cp", "-r", bpf_folder() / "headers", headers], check=True)
    (headers / "include/linux/version.h").write_text("#define LINUX_VERSION_CODE 1\n")
    monkeypatch.setattr(compiler, "HEADERS", headers)
    assert compiled()[1]
    assert len(list(folder.iterdir())) == 6


def not_private(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o020)


def not_ours(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY)


def elsewhere(path: Path) -> None:
    moved = path.rename(path.parent.parent / "moved")
    path.symlink_to(moved)


OTHERS = (not_ours, elsewhere)


@pytest.mark.parametrize("change", [not_private, *in_full(*OTHERS)])
def test_a_shared_cache_folder_is_not_used(change: Callable[[Path], None], folder: Path) -> None:
    compiled()
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    change(folder)
    assert compiled()[1]
    assert compiled(2)[1]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content


@pytest.mark.parametrize("change", [not_private, *in_full(*OTHERS)])
def test_a_shared_cache_file_is_replaced(change: Callable[[Path], None], folder: Path) -> None:
    first, _ = compiled()
    path = only_file(folder)
    evil = path.read_text().replace(first.functions["nothing"].hex(), "00" * 8)
    path.write_text(evil)
    change(path)
    assert compiled() == (first, True)
    assert compiled() == (first, False)
    assert not path.is_symlink()
    moved = folder.parent / "moved"
    assert not moved.exists() or moved.read_text() == evil


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        json.dumps({"maps": [1], "functions": {}, "license": ""}).encode(),
        json.dumps({"maps": [], "functions": {"nothing": "?"}, "license": ""}).encode(),
        json.dumps({"maps": [], "functions": [], "license": ""}).encode(),
    ],
)
def test_a_corrupt_cache_file_is_replaced(content: bytes, folder: Path) -> None:
    first, _ = compiled()
    only_file(folder).write_bytes(content)
    assert compiled() == (first, True)
    assert compiled() == (first, False)


def test_offsets_of_the_kernel_s_structs_are_read_once(folder: Path) -> None:
    wanted = (("task_struct", "mm"), ("thread_struct", "fsbase"))
    expected = btf.read_offsets(wanted)
    for corrupt in (None, b"{}", b'{"offsets of fields": [1]}', b'{"offsets of fields": ["", ""]}'):
        if corrupt is not None:
            only_file(folder).write_bytes(corrupt)
        assert btf.field_offsets(*wanted) == expected
    gone = folder / "there is no such file"
    assert btf.field_offsets(*wanted, file=gone) == expected
    with pytest.raises(KernelUnsupported):
        btf.field_offsets(*reversed(wanted), file=gone)


def test_the_oldest_programs_are_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "MOST_PROGRAMS", 2)
    for number in range(3):
        compiled(number)
        for path in folder.iterdir():  # file systems don't tell times so close to each other
            os.utime(path, ns=(path.stat().st_mtime_ns - 10**9,) * 2)
    assert len(list(folder.iterdir())) == 2
    assert [compiled(number)[1] for number in (2, 1, 0)] == [False, False, True]


def test_programs_are_compiled_without_a_cache_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program_source, "program_text", lambda name: TEXT)
    monkeypatch.setattr(program_cache, "FOLDER", tmp_path / "not there" / "cache")
    assert compiled()[1]
    assert compiled()[1]


def test_a_full_disk_leaves_no_partial_program_in_the_cache(folder: Path) -> None:
    folder.mkdir(0o700)
    with mounted(folder, "-o", "size=8k,mode=0700"):
        (folder / "filler").write_bytes(bytes(8192))
        assert compiled()[1]
        assert os.listdir(folder) == ["filler"]
        (folder / "filler").unlink()
        assert compiled()[1]
        assert not compiled()[1]


def test_only_root_has_a_program_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    with anybodys_folder() as place:
        place.chmod(0o777)
        folder = place / "cache"
        monkeypatch.setattr(program_cache, "FOLDER", folder)
        child = os.fork()
        if not child:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            program_cache.keep("some", {"license": "GPL"})
            os._exit(program_cache.find("some") is not None)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not folder.exists()
        program_cache.keep("some", {"license": "GPL"})
        assert program_cache.find("some") == {"license": "GPL"}


# The command, with another place for what it keeps.
KEEPING_IN = """
import sys
from pathlib import Path
from ebpfprof.kernel import program_cache
program_cache.FOLDER = Path(sys.argv.pop(1))
from ebpfprof.__main__ import main
main()
"""


def test_the_next_recording_uses_the_cached_program(tmp_path: Path) -> None:
    """Also with the few rights that it has kept."""
    place = tmp_path / "kept"
    command = (sys.executable, "-c", KEEPING_IN, str(place), "attach")
    with Target.start(program("ticker")) as target:
        arguments = ("--pid", str(target.pid), "-d", "0.1")
        written_ns = []
        for _ in range(2):
            finished = run(*arguments, folder=tmp_path, command=command)
            assert finished.code == 0, finished.stderr
            written_ns.append({path.name: path.stat().st_mtime_ns for path in place.iterdir()})
    assert written_ns[0]
    assert written_ns[0] == written_ns[1]
