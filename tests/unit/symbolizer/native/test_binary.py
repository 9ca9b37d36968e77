"""Names of native code: symbols of real programs, demangled; corrupt tables."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symbolizer import ElfFile
from symbolizer.elf.symbols import SymbolTable
from symbolizer.errors import SymbolizerError
from symbolizer.native import demangle
from symbolizer.native.binary import NativeBinary
from symbolizer.native.demangle import demangled

SOURCE = """
namespace shop {
template <typename T> struct Cart {
    __attribute__((noinline)) T add(T a) { total += a; return total; }
    T total = 0;
};
__attribute__((noinline)) static int local(int x) { return x * 3; }
}
extern "C" __attribute__((noinline)) int plain(int x) { return shop::local(x) + 1; }
int main(int argc, char **) {
    shop::Cart<long> cart;
    return int(cart.add(argc)) + plain(argc);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    (folder / "shop.cc").write_text(SOURCE)
    command = ["g++", "-g", "-O1", "-o", "shop", "shop.cc"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "shop"


def listed(program: Path) -> dict[str, tuple[int, int]]:
    """The output of nm: (address, size) of each function."""
    command = ["nm", "--defined-only", "--print-size", str(program)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return {r[3]: (int(r[0], 16), int(r[1], 16)) for r in rows if len(r) == 4 and r[2] in "tTW"}


@pytest.mark.machine
def test_each_function_is_found_by_all_its_addresses(program: Path) -> None:
    with ElfFile.open(program) as elf:
        table = SymbolTable.open(elf)
        assert table is not None
        functions = listed(program)
        assert len(functions) >= 4
        for name, (start, size) in functions.items():
            for vaddr in (start, start + size - 1):
                symbol = table.at(vaddr)
                assert symbol is not None
                assert (symbol.name, symbol.start, symbol.end) == (name, start, start + size)


@pytest.mark.machine
def test_an_address_outside_of_all_functions_has_no_name(program: Path) -> None:
    with ElfFile.open(program) as elf:
        table = SymbolTable.open(elf)
        assert table is not None
        data = next(s for s in elf.sections.values() if s.name == ".data")
        assert [table.at(vaddr) for vaddr in (0, -1, 1 << 64, data.vaddr)] == [None] * 4
        plt = elf.sections[".plt"]
        assert table.at(plt.vaddr) is None  # although _init, without a size, comes before


@pytest.mark.machine
def test_a_stripped_file_has_the_names_of_its_debug_file(program: Path, tmp_path: Path) -> None:
    stripped, debug = tmp_path / "stripped", tmp_path / "debug"
    shutil.copy(program, stripped)
    subprocess.run(["objcopy", "--only-keep-debug", str(program), str(debug)], check=True)
    subprocess.run(["strip", str(stripped)], check=True)
    (start, _), name = listed(program)["plain"], "plain"
    with ElfFile.open(stripped) as elf, ElfFile.open(debug) as other:
        alone, together = NativeBinary(elf), NativeBinary(elf, other)
        assert alone.frames_many([start])[start] == ()
        assert together.frames_many([start])[start][-1].function == name


@pytest.mark.machine
def test_a_library_has_the_names_that_it_exports() -> None:
    (path,) = {
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()
        if "/libc.so" in line
    }  # fmt: skip
    with ElfFile.open(path) as elf:
        table = SymbolTable.open(elf)
        assert table is not None
        command = ["nm", "--dynamic", "--defined-only", path]
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        (address,) = {
            int(line.split()[0], 16) for line in listing.splitlines() if " qsort@@" in line
        }
        symbol = table.at(address)
        assert symbol is not None
        assert symbol.name == "qsort"


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_ZN4shop4CartIlE3addEl", "shop::Cart<long>::add(long)"),
        ("_ZNSt6vectorIiSaIiEE9push_backERKi",
         "std::vector<int, std::allocator<int> >::push_back(int const&)"),
        ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
        # From the description of Rust's own scheme, RFC 2603.
        ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
        ("_RINvNtC3std3mem8align_ofdE", "std::mem::align_of::<f64>"),
        ("plain", "plain"),
        ("_Znonsense", "_Znonsense"),
        ("_Rnonsense", "_Rnonsense"),
        ("", ""),
    ],
)  # fmt: skip
def test_names_are_demangled(mangled: str, name: str) -> None:
    assert demangled(mangled) == name


def test_a_name_that_doubles_with_each_step_stays_mangled(
    capfd: pytest.CaptureFixture[str],
) -> None:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def back_to(position: int) -> str:
        number = position - 1
        return "B" + (digits[number // 62] if number >= 62 else "") + digits[number % 62] + "_"

    body, positions = "INvC1a1b", [8]
    body += "TmmE"
    for _ in range(20):
        positions.append(len(body))
        body += "T" + back_to(positions[-2]) * 2 + "E"
    assert demangled(f"_R{body}E") == f"_R{body}E"
    assert capfd.readouterr().out == ""


def demanglers() -> set[int]:
    """The child processes that demangle; one ends at a name that takes too much CPU time."""
    return {child.pid for child in psutil.Process().children() if is_demangler(child)}


def is_demangler(process: psutil.Process) -> bool:
    with suppress(psutil.Error):  # it may end meanwhile
        return demangle.__file__ in process.cmdline()
    return False


@given(st.text(alphabet="_ZNRCSt0123456789abcEIBTv", max_size=200), st.sampled_from(["_Z", "_R"]))
def test_no_name_crashes_the_demangler(text: str, prefix: str) -> None:
    before = demanglers()
    assert demangled(prefix + text)
    assert before <= demanglers()


@pytest.mark.full
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_corrupt_tables_only_lose_names(program: Path, data: st.DataObject) -> None:
    content = bytearray(program.read_bytes())
    with ElfFile.open(program) as elf:
        section = elf.sections[data.draw(st.sampled_from([".symtab", ".strtab"]))]
        headers = int.from_bytes(content[40:48], "little")
    start, size = data.draw(
        st.sampled_from([(section.offset, section.size), (headers, len(content) - headers)])
    )
    for _ in range(data.draw(st.integers(1, 8))):
        content[start + data.draw(st.integers(0, size - 1))] = data.draw(st.integers(0, 255))
    vaddrs = {vaddr for vaddr, _ in listed(program).values()} | {0, 1 << 63}
    with suppress(SymbolizerError):  # where the file is no valid ELF file any more
        native = NativeBinary(ElfFile.from_bytes(bytes(content)))
        assert set(native.frames_many(vaddrs)) == vaddrs
