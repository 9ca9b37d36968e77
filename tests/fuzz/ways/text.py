"""Ways in through text that a target chooses: names, paths, labels, files of /proc, versions."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Sequence
from functools import cache

import numpy as np

from ebpfprof.commands.list import render
from ebpfprof.console.text import duration, printable, quantity, well_formed
from ebpfprof.discovery import processes
from ebpfprof.discovery.containers import container_of
from ebpfprof.discovery.executables import Executable, Executables
from ebpfprof.discovery.processes import GoProcess
from ebpfprof.errors import TargetGone
from ebpfprof.kernel.kallsyms import KernelSymbols
from ebpfprof.process.mappings import AddressRanges, MappedObject, ObjectKind, _mapping
from ebpfprof.process.process import Target
from ebpfprof.profilers.labels import label_sets
from symbolizer import GoVersion, UnsupportedGoVersion, layout_for
from tests.fuzz.driver import Parser
from tests.fuzz.seeds import saved_seeds
from tests.fuzz.ways.native import debug_seeds
from tests.unit.profilers.test_labels import LABEL_SET, row

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
"""The colours of our own tables, which move no cursor and name no window."""


def check_shown(text: str, *, has_color: bool = False) -> None:
    """A terminal may get text and ends of lines only; with colour, colours, too."""
    if has_color:
        text = _COLOR.sub("", text)
    for line in text.split("\n"):
        assert line.isprintable(), repr(line)


# Names.

NAMES = (
    b"main.(*Cache[go.shape.string]).Get.func1",
    "gopher/été.Ünïcode\u4e16\u754c".encode(),
    b"evil\x1b]0;owned\x07\x1b[2J\x9b31m",
    "a\u202eb\u2066c\u2069\u200f\u2028\u0085\ufeff".encode(),
    b"\xff\xfe\xed\xa0\x80\xf4\x90\x80\x80</script><b>&amp;;\n\r\t 7",
    b"x" * 600,
)


def ask_name(data: bytes) -> None:
    for errors in ("surrogateescape", "replace", "backslashreplace"):
        text = data.decode("utf-8", errors)
        check_shown(printable(text))
        assert printable(text, ascii_only=True).isascii()
        assert printable(printable(text)) == printable(text)
        assert json.loads(json.dumps(well_formed(text))).encode() is not None
    number = int.from_bytes(data[:9], "little", signed=True)
    assert duration(number)
    assert printable(quantity(number, data[9:].decode("utf-8", "replace"))).isprintable()


def ask_version(data: bytes) -> None:
    version = GoVersion.parse(data.decode("utf-8", "replace"))
    assert version.minor >= 0
    assert layout_for(version, allow_unknown_version=True).size("g") > 0


VERSIONS = (
    b"go1.27.3",
    b"go1.22rc1",
    b"devel go1.28-abcdef Mon",
    b"go1.21.5 X:nocoverage",
    b"go1.19",
)


# The table of processes.

_WIDTHS = (None, 20, 80)


def _listed(data: bytes) -> list[GoProcess]:
    """Processes whose every text is a piece of the input."""
    text = processes._text(data)
    third = max(len(text) // 3, 1)
    name, command, path = text[:third], text[third : 2 * third], text[2 * third :]
    return [
        GoProcess(1, name[:15], command, path[:9], name, path, command[:70], True, ""),
        GoProcess(2, name, "", name, None, name, None, False, text, executable=path),
        GoProcess(3, "", "", "", "", "", text, False, "", is_go=False),
    ]


def ask_list(data: bytes) -> None:
    found = _listed(data)
    # A table takes milliseconds: each input gets one of six forms.
    way = zlib.crc32(data)
    has_color = bool(way & 1)
    check_shown(render(found, _WIDTHS[way % 3], color=has_color), has_color=has_color)
    assert json.dumps([each.command for each in found])
    processes.has_name(found[0], [data[:20].decode("utf-8", "replace")])


# Files of /proc.


class _Process(Target):
    """A process whose files in /proc have the input as content."""

    def __init__(self, said: bytes) -> None:
        self.pid = 1
        self.exe_name = "/usr/bin/program"
        self._said = said
        self._auxv = said

    def _read(self, name: str) -> bytes:
        return self._said


MAPS = (
    b"55d0c0a00000-55d0c0a01000 r-xp 00001000 fd:01 1234    /usr/bin/program\n"
    b"7f0000000000-7f0000100000 r-xp 00000000 08:02 99 /lib/a b\\012c (deleted)\n"
    b"7f0000200000-7f0000201000 rwxp 00000000 00:00 0 \n"
    b"7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0                          [vdso]\n"
    b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n",
    b"400000-401000 r-xp 00000000 08:02 5 /tmp/\x1b[31m\xff\r x (deleted) (deleted)\n",
)


def ask_maps(data: bytes) -> None:
    process = _Process(data)
    ranges = AddressRanges()
    for line in process.executable_lines():
        assert "\n" not in line.name
        assert "\n" not in line.path
        if line.start < line.limit:
            ranges.put(MappedObject(_mapping(line, ""), ObjectKind.ANONYMOUS))
    found = [(each.start, each.limit) for each in ranges._ranges]
    assert found == sorted(found)
    for each in process.executable_mappings(process.exe_name, "c0ffee"):
        ranges.at(each.start)


def ask_status(data: bytes) -> None:
    assert _Process(data).innermost_pid() >= 0


def ask_auxv(data: bytes) -> None:
    assert isinstance(_Process(data).load_bias(0x401000), int)


STATUS = (
    b"Name:\tevil\\n\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nNSpid:\t4321\t77\t1\nThreads:\t1\n",
    b"Name:\tNSpid:\\t7\nNSpid:\t4321\n",
)


def ask_stat(data: bytes) -> None:
    """The input is the name, which a process can choose freely, as the kernel has it."""
    name = data.replace(b"\0", b"")[:15]
    line = b"123 (" + name + b") S 7 123 123 0 -1 4194304 " + b"0 " * 43
    fields = line.rpartition(b")")[2].split()
    fd = os.memfd_create("stat", os.MFD_CLOEXEC)
    try:
        os.write(fd, line)
        whole = processes._read(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    assert whole == line
    assert fields[:2] == [b"S", b"7"]


_ID = "4f1c0e6a" * 8
CGROUPS = (
    f"0::/system.slice/docker-{_ID}.scope\n".encode(),
    b"12:cpu:/kubepods/burstable/podc1d2e3f4-0a1b-4c2d-8e3f-001122334455/" + _ID.encode() + b"\n",
    b"0::/lxc.payload.web-1/init.scope\n1:name=systemd:/lxc/web-1\n",
    b"0::/buildkit/abcdefghijklmnopqrstuvwxy\n",
    f"0::/kubepods-podc1d2e3f4_0a1b_4c2d_8e3f_001122334455.slice:cri-containerd:{_ID}".encode(),
)


def ask_cgroup(data: bytes) -> None:
    found = container_of(processes._text(data))
    if found:
        assert re.fullmatch(r"[\w.-]{1,128}", found.id, re.ASCII)
        assert found.pod is None or re.fullmatch(r"[0-9a-f-]{36}", found.pod)


KALLSYMS = (
    b"ffffffff81000000 T _stext\nffffffff81000000 t __secret\nffffffff81000100 W do_it\n"
    b"ffffffffc0000000 t nf_x\t[nf_tables]\nffffffffc0001000 t bpf_prog_0a1b_f\t[bpf]\n"
    b"ffffffff82000000 D data\n",
    b"0000000000000000 T hidden\n0000000000000000 t all\n",
    b"ffffffff81000000 T a\nffffffff81000010 T b",
)


def ask_kallsyms(data: bytes) -> None:
    symbols = KernelSymbols(data, "hidden")
    for address in (0xFFFFFFFF81000004, 0xFFFFFFFF81000104, 0xFFFFFFFFC0001010, 0, (1 << 64) - 1):
        found = symbols.at(address)
        if found:
            assert found.start <= address
            assert "\n" not in found.name + found.module


# Labels, as a BPF program copied them from the target's memory.


@cache
def label_seeds() -> Sequence[bytes]:
    one = row((b"handler", b"/users/{id}"), (b"tenant", b"\x1b[31m\xff"))
    many = row(*[(b"k%d" % at, b"v" * (20 * at)) for at in range(12)], rest=b"x")
    cut = row((("x" + "\u044f" * 400).encode(), ("\u044f" * 400).encode()))
    return one.tobytes(), many.tobytes(), cut.tobytes()


def ask_labels(data: bytes) -> None:
    whole = data[: LABEL_SET.itemsize].ljust(LABEL_SET.itemsize, b"\0")
    (found,) = label_sets(np.array([7], "<u8"), np.frombuffer(whole, LABEL_SET)).values()
    for label in found:
        assert label.key
        assert str(label.value).encode()
        assert printable(f"{label.key}={label.value}").isprintable()


# Files of processes, as `list` looks at all of them.


def ask_executable(data: bytes) -> None:
    fd = os.memfd_create("program", os.MFD_CLOEXEC)
    try:
        os.write(fd, data)
        found = Executables()
        found.begin_survey()
        what = found.of_file(fd)
    finally:
        os.close(fd)
    assert isinstance(what, Executable)
    assert printable(what.why_not).isprintable()


@saved_seeds
def executable_seeds() -> Sequence[bytes]:
    from tests.fuzz.minigo import NEWEST, mini, real

    foreign = bytearray(debug_seeds()[0])
    foreign[18:20] = (183).to_bytes(2, "little")
    small = mini(real("frames", NEWEST), {"main.exercise"})
    return (*debug_seeds(), small, bytes(foreign) + b"\xff Go buildinf:")


def processes_named(names: Sequence[bytes]) -> Sequence[bytes]:
    return [b" ".join(names), *names]


TEXT = (
    Parser("names", ("ebpfprof.console.text",), ask_name, lambda: NAMES, allowed=()),
    Parser(
        "versions",
        ("symbolizer.go.version", "symbolizer.go.runtime_layout"),
        ask_version,
        lambda: VERSIONS,
        allowed=(UnsupportedGoVersion,),
    ),
    Parser(
        "process-lists",
        (
            "ebpfprof.commands.list",
            "ebpfprof.discovery.processes",
            "ebpfprof.console.columns",
        ),
        ask_list,
        lambda: processes_named(NAMES),
        allowed=(),
        share=60,
    ),
    Parser(
        "maps",
        ("ebpfprof.process.process", "ebpfprof.process.mappings"),
        ask_maps,
        lambda: MAPS,
        allowed=(),
    ),
    Parser(
        "status", ("ebpfprof.process.process",), ask_status, lambda: STATUS, allowed=(TargetGone,)
    ),
    Parser(
        "stat",
        ("ebpfprof.discovery.processes",),
        ask_stat,
        lambda: (b"a) R 1 2 3", b"x"),
        allowed=(),
    ),
    Parser(
        "auxv",
        ("ebpfprof.process.process",),
        ask_auxv,
        lambda: (
            (3).to_bytes(8, "little") * 2 + (9).to_bytes(8, "little") + b"\x40" * 8 + bytes(16),
        ),
        allowed=(TargetGone,),
    ),
    Parser("cgroups", ("ebpfprof.discovery.containers",), ask_cgroup, lambda: CGROUPS, allowed=()),
    Parser("kallsyms", ("ebpfprof.kernel.kallsyms",), ask_kallsyms, lambda: KALLSYMS, allowed=()),
    Parser("labels", ("ebpfprof.profilers.labels",), ask_labels, label_seeds, allowed=()),
    Parser(
        "executables",
        ("ebpfprof.discovery.executables",),
        ask_executable,
        executable_seeds,
        allowed=(),
        share=100,
    ),
)
