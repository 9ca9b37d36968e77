"""Files that take more to read than is allowed: names are given up, the recording is not."""

from __future__ import annotations

import re
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Final

import pytest

from ebpfprof.errors import ExitCode
from ebpfprof.export import pprof
from tests.kernel.programs import program
from tests.kernel.tampered import command
from tests.recorder import recording, run
from tests.targets_run import Target

LIBRARIES: Final = 6
MAX_MIB: Final = 1024
SECTION_MIB: Final = 200
PROGRAM: Final = """
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **paths) {
    void (*spin[64])(void);
    char line[64];
    for (int i = 1; i < count; i++)
        spin[i] = (void (*)(void))dlsym(dlopen(paths[i], RTLD_NOW), "spin");
    printf("ready %d\\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        for (int i = 1; i < count; i++)
            for (clock_t end = clock() + CLOCKS_PER_SEC / 10; clock() < end;)
                spin[i]();
        puts("done");
        fflush(stdout);
    }
}
"""
# Without a symbol of its own, only DWARF could tell the name of the function that takes the time.
LIBRARY: Final = """
static __attribute__((noinline)) void work(void) {
    for (volatile int i = 0; i < 300000; i++) {}
}
void spin(void) { work(); work(); }
"""


def built(folder: Path, name: str, source: str, *flags: str) -> Path:
    made = folder / name
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["gcc", "-O1", *flags, "-o", made, folder / f"{name}.c", "-ldl"], check=True)
    return made


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Libraries of about 200 KB, with DWARF that takes 200 MiB each."""
    folder = tmp_path_factory.mktemp("libraries")
    plain = built(folder, "plain.so", LIBRARY, "-shared", "-fPIC", "-s")
    unit = struct.pack("<IHIB", (1 << 20) - 4, 2, 0, 8).ljust(1 << 20, b"\0")
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(unit) for _ in range(SECTION_MIB)) + packer.flush()
    section = folder / "info"
    section.write_bytes(b"ZLIB" + (SECTION_MIB << 20).to_bytes(8, "big") + packed)
    made = [folder / f"lib{number}.so" for number in range(LIBRARIES)]
    for path in made:
        add = f"--add-section=.zdebug_info={section}"
        subprocess.run(["objcopy", add, plain, path], check=True)
    return made


@pytest.mark.full
def test_dwarf_beyond_the_memory_limit_leaves_addresses(
    libraries: list[Path], tmp_path: Path
) -> None:
    native = built(tmp_path, "program", PROGRAM)
    file = tmp_path / "cpu.pb.gz"
    arguments = ("--profile", "cpu", "--hz", "999", "--long", "-o", str(file))
    with (
        Target.start(native, *map(str, libraries)) as target,
        recording(target.pid, tmp_path, *arguments) as recorder,
    ):
        target.ask("spin", "done")
        recorder.interrupt()
        finished = recorder.finish()
    assert finished.code == ExitCode.OK, finished.stderr
    messages = [line for line in finished.stderr.splitlines() if "names of process" in line]
    assert len(messages) == 1
    assert "takes more than 512 MiB of memory" in messages[0]
    assert re.search(r"[1-9]\d* % of its samples lack names or lines", messages[0])
    memory = re.search(r"ebpfprof used .* and (\d+) MiB of memory", finished.stdout.decode())
    assert memory
    assert int(memory[1]) < MAX_MIB
    profile = pprof.decode(file.read_bytes(), kind="cpu")
    assert any("takes more than 512 MiB of memory" in comment for comment in profile.comments)
    files = {
        at.mapping.filename for sample in profile.samples for at in sample.locations if at.mapping
    }
    assert {str(path) for path in libraries} <= files, "the samples are there, by address"


@pytest.mark.full
def test_files_beyond_the_time_limit_leave_addresses(tmp_path: Path) -> None:
    with Target.start(program("ticker")) as target:
        finished = run(
            *("--pid", str(target.pid), "-d", "1", "--profile", "block"),
            folder=tmp_path,
            command=command("runs out of time for names"),
        )
    assert finished.code == ExitCode.OK, finished.stderr
    (output,) = (line for line in finished.stderr.splitlines() if "names of process" in line)
    assert "reading its files takes more than 0 s of CPU time" in output
    assert "100 % of its waits" in output
    (file,) = tmp_path.glob("*.block.pb.gz")
    profile = pprof.decode(file.read_bytes(), kind="block")
    assert any("100 % of its waits lack names or lines" in comment for comment in profile.comments)
    assert profile.samples
    assert all(not at.frames for sample in profile.samples for at in sample.locations)


def test_an_executable_beyond_the_time_limit_is_refused(tmp_path: Path) -> None:
    with Target.start(program("ticker")) as target:
        finished = run(
            *("--pid", str(target.pid), "-d", "1"),
            folder=tmp_path,
            command=command("has no time to inspect"),
        )
    assert finished.code == ExitCode.CORRUPT_BINARY, finished.stderr
    assert "reading the files of this process takes more than 0 s of CPU time" in finished.stderr
    assert list(tmp_path.iterdir()) == []
