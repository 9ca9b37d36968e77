"""What is mapped executable in real processes: libraries that come and go, JIT pages, the vDSO."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebpfprof.process.mappings import MappedObject, MappedObjects, ObjectKind
from ebpfprof.process.process import Target as Process
from symbolizer import ElfFile
from tests.kernel.namespaces import NEEDS_NAMESPACES
from tests.kernel.test_containers import NAMESPACES, container
from tests.targets_run import Target

# Follows commands: a word and its argument on each line.
HOST = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

static void *library;
int main(void) {
    char line[4096], path[4096];
    unsigned long at, offset, size;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready %d\n", getpid());
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        for (char *c = line; *c; c++)
            if (*c == 1) *c = '\n';
        if (!strncmp(line, "open ", 5)) {
            library = dlopen(line + 5, RTLD_NOW | RTLD_LOCAL);
            if (!library) { fprintf(stderr, "%s\n", dlerror()); return 1; }
            printf("at %lx\n", (unsigned long)dlsym(library, "answer"));
        } else if (!strcmp(line, "close")) {
            printf("closed %d\n", dlclose(library));
        } else if (!strcmp(line, "jit")) {
            void *page = mmap(NULL, 8192, PROT_READ | PROT_EXEC,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (page == MAP_FAILED) return 1;
            printf("at %lx\n", (unsigned long)page);
        } else if (sscanf(line, "map %lx %lx %lx %4095s", &at, &offset, &size, path) == 4) {
            int fd = open(path, O_RDWR);
            void *place = mmap((void *)at, size, PROT_READ | PROT_EXEC,
                               MAP_PRIVATE | (at ? MAP_FIXED : 0), fd, offset);
            if (place == MAP_FAILED) { perror("mmap"); return 1; }
            close(fd);
            printf("at %lx\n", (unsigned long)place);
        } else if (!strcmp(line, "vdso")) {
            printf("at %lx\n", getauxval(AT_SYSINFO_EHDR));
        } else if (!strcmp(line, "main")) {
            printf("at %lx\n", (unsigned long)main);
        } else if (!strncmp(line, "exec ", 5)) {
            execl(line + 5, line + 5, NULL);
            return 1;
        }
    }
}
"""


def build(output: Path, source: str, *flags: str) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-g", "-x", "c", "-", *flags, "-o", str(output)]
    subprocess.run(command, input=source, text=True, check=True)
    return output


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("host") / "host", HOST)


def library(output: Path, number: int = 1) -> Path:
    # More than two pages of code.
    source = f'asm(".text; .skip 8192");\nint answer(int x) {{ return x + {number}; }}\n'
    return build(output, source, "-shared", "-fPIC")


@contextmanager
def running(program: Path) -> Iterator[tuple[Target, Process]]:
    with Target.start(program) as target, Process(target.pid) as process:
        yield target, process


def answered(target: Target, line: str) -> int:
    """The address that the target answers with."""
    return int(target.ask(line, "at ").split()[1], 16)


def at(objects: MappedObjects, address: int) -> MappedObject:
    """What must be there."""
    mapped = objects.at(address)
    assert mapped is not None
    assert mapped.mapping.start <= address < mapped.mapping.limit
    return mapped


def elf_of(mapped: MappedObject) -> ElfFile:
    assert mapped.elf is not None
    return mapped.elf


def build_id(file: Path) -> str:
    with ElfFile.open(file) as elf:
        assert elf.build_id
        return elf.build_id


def linked_address(file: Path, symbol: str) -> int:
    """As nm has it."""
    printed = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in printed.splitlines() if line.split()[-1] == symbol)
    return int(line.split()[0], 16)


@pytest.mark.parametrize("flags", [("-pie",), ("-no-pie",), ("-pie", "-Wl,-z,noseparate-code")])
def test_the_main_binary_is_mapped(flags: tuple[str, ...], tmp_path: Path) -> None:
    file = build(tmp_path / "main", HOST, *flags)
    with running(file) as (target, process), MappedObjects(process) as found:
        main = at(found, answered(target, "main"))
        assert main.kind is ObjectKind.FILE
        assert (
            main.mapping
            == process.executable_mappings(str(file), build_id(file))[0]
            == found.mappings[0]
        )
        assert main.mapping.build_id == build_id(file)
        assert main.bias == process.load_bias(elf_of(main).entry)
        assert answered(target, "main") - main.bias == linked_address(file, "main")
        assert bool(main.bias) == ("-pie" in flags)
        names = [mapping.filename for mapping in found.mappings]
        assert names == [each.filename for each in process.executable_mappings(str(file), "")]
        assert {"[vdso]", "[vsyscall]"} <= set(names)
        assert found.warnings == ()


def test_a_library_is_found_when_opened_and_kept_when_closed(host: Path, tmp_path: Path) -> None:
    file = library(tmp_path / "late.so")
    now_s = 0.0
    with running(host) as (target, process), MappedObjects(process, lambda: now_s) as found:
        assert str(file) not in [mapping.filename for mapping in found.mappings]
        answer = answered(target, f"open {file}")
        assert found.at(answer) is None  # it was looked a moment ago
        now_s = 1
        mapped = at(found, answer)
        assert mapped.kind is ObjectKind.FILE
        assert mapped.mapping.filename == str(file)
        assert mapped.mapping.build_id == elf_of(mapped).build_id == build_id(file)
        assert answer - mapped.bias == linked_address(file, "answer")
        target.ask("close", "closed 0")
        file.unlink()
        found.refresh()
        assert str(file) not in [line.path for line in process.executable_lines()]
        assert at(found, answer) is mapped
        assert mapped.mapping in found.mappings
        assert elf_of(mapped).read(answer - mapped.bias, 4)


def test_mappings_of_an_ended_target_stay_readable(host: Path, tmp_path: Path) -> None:
    file = library(tmp_path / "late.so")
    with running(host) as (target, process):
        answer = answered(target, f"open {file}")
        with MappedObjects(process) as found:
            target.close()
            file.unlink()
            found.refresh()
            mapped = at(found, answer)
            assert mapped.mapping in found.mappings
            assert elf_of(mapped).read(answer - mapped.bias, 4)


def test_a_second_library_replaces_the_first_at_its_address(host: Path, tmp_path: Path) -> None:
    first, second = library(tmp_path / "first.so", 1), library(tmp_path / "second.so", 2)
    with running(host) as (target, process), MappedObjects(process) as found:
        place = answered(target, f"map 0 1000 2000 {first}")
        found.refresh()
        before = at(found, place)
        assert before.mapping.build_id == build_id(first)
        assert answered(target, f"map {place:x} 1000 1000 {second}") == place
        found.refresh()
        after = at(found, place)
        assert after.mapping.build_id == build_id(second)
        assert {before.mapping, after.mapping} <= set(found.mappings)
        # Of the first one the second page is left, in a mapping of its own.
        rest = at(found, place + 0x1000)
        assert rest.mapping.start == place + 0x1000
        assert rest.elf is before.elf
        assert rest.bias == before.bias == place - 0x1000


def test_a_deleted_or_replaced_library_is_read_as_mapped(host: Path, tmp_path: Path) -> None:
    deleted, replaced = library(tmp_path / "deleted.so", 1), library(tmp_path / "replaced.so", 2)
    ids = build_id(deleted), build_id(replaced)
    newer = library(tmp_path / "newer.so", 3)
    with running(host) as (target, process):
        places = [answered(target, f"open {file}") for file in (deleted, replaced)]
        deleted.unlink()
        newer.rename(replaced)
        assert build_id(replaced) not in ids
        with MappedObjects(process) as found:
            mapped = [at(found, place) for place in places]
            assert tuple(each.mapping.build_id for each in mapped) == ids
            names = [each.mapping.filename for each in mapped]
            assert names == [str(deleted), str(replaced)]
            assert found.warnings == ()


@pytest.mark.parametrize("name", ["a\r7f-80 r-xp 0 0:0 1 x.so", "a\nb.so", "\udcff\x1b[1m.so"])
def test_a_library_with_an_odd_name_is_found(name: str, host: Path, tmp_path: Path) -> None:
    file = library(tmp_path / "plain.so").rename(tmp_path / name)
    with running(host) as (target, process):
        link = tmp_path / "link.so"
        link.symlink_to(file)
        answer = answered(target, f"open {link}")
        with MappedObjects(process) as found:
            mapped = at(found, answer)
            assert mapped.mapping.build_id == build_id(file)
            assert mapped.mapping.filename == str(file).replace("\n", "\\012")
            lines = Path(f"/proc/{process.pid}/maps").read_bytes().split(b"\n")
            executable = [line for line in lines if line.split()[1:2] == [b"r-xp"]]
            assert len(found.mappings) == len(executable) + 1  # [vsyscall] is --xp


def test_jit_pages_are_anonymous(host: Path) -> None:
    with running(host) as (target, process), MappedObjects(process) as found:
        page = answered(target, "jit")
        found.refresh()
        mapped = at(found, page)
        assert mapped.kind is ObjectKind.ANONYMOUS
        assert mapped.mapping.filename == "[jit]"
        assert (mapped.elf, mapped.native(), mapped.unwind_table()) == (None, None, None)


def test_the_vdso_is_read(host: Path) -> None:
    with running(host) as (target, process), MappedObjects(process) as found:
        header = answered(target, "vdso")
        vdso = at(found, header)
        assert (vdso.kind, vdso.mapping.filename) == (ObjectKind.VDSO, "[vdso]")
        assert vdso.bias == header - elf_of(vdso).segments[0].vaddr
        assert len(vdso.mapping.build_id) == 40
        assert {".dynsym", ".eh_frame"} <= elf_of(vdso).sections.keys()
        assert elf_of(vdso).is_pie


@pytest.mark.parametrize("what", ["text", "device"])
def test_a_mapped_file_that_is_not_elf_is_unreadable(what: str, host: Path, tmp_path: Path) -> None:
    file = tmp_path / "text"
    if what == "device":
        file = Path("/dev/zero")
    else:
        file.write_text("not a program\n" * 1000)
    with running(host) as (target, process):
        place = answered(target, f"map 0 0 1000 {file}")
        with MappedObjects(process) as found:
            mapped = at(found, place)
            assert mapped.kind is ObjectKind.UNREADABLE
            assert mapped.mapping.filename == str(file)
            assert (mapped.elf, mapped.native(), mapped.unwind_table()) == (None, None, None)
            (warning,) = found.warnings
            if what == "device":
                assert warning == "/dev/zero can't be opened: not a regular file"
            else:
                assert warning.startswith(f"{file} can't be read: this is not an ELF file")


def test_mappings_stay_as_before_exec(host: Path) -> None:
    with running(host) as (target, process), MappedObjects(process) as found:
        main = answered(target, "main")
        before, known = found.mappings, at(found, main)
        target.ask(f"exec {host}", "ready ")
        found.refresh()
        assert found.mappings == before
        assert found.at(main) is known
        other = answered(target, "main")
        assert found.at(other) in (None, known)


def test_an_ended_target_has_no_mappings(host: Path) -> None:
    with running(host) as (target, process):
        target.close()
        with MappedObjects(process) as found:
            assert found.mappings == ()
            assert found.at(0x401000) is None


def name_at(mapped: MappedObject, address: int) -> str:
    """The function at an address; "" without its debug file, as the program is stripped."""
    native = mapped.native()
    assert native is not None
    linked = address - mapped.bias
    return "".join(frame.function for frame in native.frames_many([linked])[linked])


@pytest.mark.parametrize("where", ["inside", "outside", "wrong", "fifo"])
def test_debug_files_come_from_the_root_of_the_target(
    where: str, host: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    program, debug = root / "host", tmp_path / "host.debug"
    root.mkdir()
    subprocess.run(["objcopy", "--only-keep-debug", host, debug], check=True)
    subprocess.run(["objcopy", "--strip-all", host, program], check=True)
    identity = build_id(program)
    for file in needed_libraries(host):
        copy = root / file.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    by_id = root / "usr/lib/debug/.build-id" / identity[:2] / f"{identity[2:]}.debug"
    by_id.parent.mkdir(parents=True)
    match where:
        case "inside":
            # Absolute, as seen by the target.
            shutil.copy(debug, root / "elsewhere.debug")
            by_id.symlink_to("/elsewhere.debug")
        case "outside":
            by_id.symlink_to(debug)
        case "wrong":
            shutil.copy(library(tmp_path / "wrong.so"), by_id)
        case "fifo":
            os.mkfifo(by_id)
    files = len(os.listdir("/proc/self/fd"))
    with (
        Target.start(Path("/usr/sbin/chroot"), str(root), "/host") as target,
        Process(target.pid) as process,
        MappedObjects(process) as found,
    ):
        assert os.readlink(f"/proc/{target.pid}/root") == str(root)
        address = answered(target, "main")
        assert name_at(at(found, address), address) == ("main" if where == "inside" else "")
        reasons = {"wrong": "its build id is", "fifo": "not a regular file"}
        assert len(found.warnings) == (where in reasons)
        assert all(reasons[where] in warning for warning in found.warnings)
    assert len(os.listdir("/proc/self/fd")) == files


@NEEDS_NAMESPACES
@pytest.mark.parametrize("how", NAMESPACES)
def test_objects_of_a_container_are_read(how: str, tmp_path: Path) -> None:
    debug = build(tmp_path / "whole", HOST, "-static")
    file = tmp_path / "app"
    subprocess.run(["objcopy", "--strip-all", debug, file], check=True)
    subprocess.run(["objcopy", "--only-keep-debug", debug], check=True)
    identity = build_id(file)
    with (
        container(how, file, tmp_path) as (target, pid),
        Process(pid) as process,
        MappedObjects(process) as found,
    ):
        # Where only the container sees it, and as its own root user would put it there.
        folder = Path(f"/proc/{pid}/root/usr/lib/debug/.build-id/{identity[:2]}")
        folder.mkdir(parents=True)
        shutil.copy(debug, folder / f"{identity[2:]}.debug")
        address = answered(target, "main")
        main = at(found, address)
        assert (main.kind, main.mapping.build_id) == (ObjectKind.FILE, identity)
        assert main.mapping.filename == process.exe_name
        assert name_at(main, address) == "main"
        assert found.warnings == ()


def needed_libraries(program: Path) -> list[Path]:
    printed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    words = [word for word in printed.split() if word.startswith("/")]
    assert len(words) >= 2
    return [Path(word) for word in words]
