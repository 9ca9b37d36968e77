"""Names of C++ and Rust: as the compilers' own tools write them; hostile names stay mangled."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from symbolizer.native import demangle
from symbolizer.native.demangle import Demangler, demangled

CPP: Final = """
#include <functional>
#include <string>
namespace shop { namespace {
struct Item { int price; };
template <typename T, int N> struct Box {
    T things[N];
    __attribute__((noinline)) T &operator[](unsigned i) const;
    operator bool() const;
    ~Box();
};
template <typename T, int N> T &Box<T, N>::operator[](unsigned i) const { return (T &)things[i]; }
template <typename T, int N> Box<T, N>::operator bool() const { return things[0].price; }
template <typename T, int N> __attribute__((noinline)) Box<T, N>::~Box() { things[0].price = 0; }
}
int sell(std::string const &name, int (*how)(int, ...), std::function<int(Item &&)> then) {
    Box<Item, 3> box{};
    auto twice = [&](auto x) __attribute__((noinline)) { return x + (long)name.size(); };
    return box[1].price + (bool)box + (int)twice(1.5) + how(1) + then(Item{2});
}
}
"""

# The examples of RFC 2603, and symbols of rustc 1.95 with the names of rustc-demangle.
RUST: Final = {
    "_RNvC6_123foo3bar": "123foo::bar",
    "_RNvNtCs1234_7mycrate3foo3bar": "mycrate::foo::bar",
    "_RNCNvCsgStHSCytQ6I_7mycrate4main0B3_": "mycrate::main::{closure#0}",
    "_RINvNtC3std3mem8align_ofdE": "std::mem::align_of::<f64>",
    "_RINvNtNtCs6xxl1lAjzDf_1a5inner4deep3gendKj2_EB6_": "a::inner::deep::gen::<f64, 2>",
    "_RNCINvNtNtCs6xxl1lAjzDf_1a5inner4deep3genlKj3_E0B8_": (
        "a::inner::deep::gen::<i32, 3>::{closure#0}"
    ),
    "_RNvXCs6xxl1lAjzDf_1aINtB2_2SqdENtB2_5Shape4area": "<a::Sq<f64> as a::Shape>::area",
    "_RNvXsd_NtNtNtCsgEmfK2I1SDS_4core3fmt3num3impyNtB9_7Display3fmt": (
        "<u64 as core::fmt::Display>::fmt"
    ),
    "_RINvMNtCsgEmfK2I1SDS_4core3stre18trim_start_matchesReECsgY6Mt91CT9J_14rustc_demangle": (
        "<str>::trim_start_matches::<&str>"
    ),
    "_RNvC6_123foo3bar.llvm.9D1C9369": "123foo::bar",
    "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE": "core::fmt::Formatter::pad",
    "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.123": "core::fmt::Formatter::pad",
    "_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0123456789abcdefE": (
        "core::ptr::drop_in_place<alloc::string::String>"
    ),
    "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$"
    "3bar17h930b740aa94f1d3aE": "<Test + 'static as foo::Bar<Test>>::bar",
}


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Demangler]:
    """Begin each test with an empty cache, without a process, and with all starts left."""
    demangled.cache_clear()
    own = Demangler()
    monkeypatch.setattr(demangle, "DEMANGLER", own)
    yield own
    own.end()


def doubling(steps: int) -> str:
    """f(A<int, int>, A<S0, S0>, A<S1, S1>, ...): 2**steps times as long as it looks."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def back_to(number: int) -> str:
        high, low = divmod(number, 36)
        return "S" + (digits[high] if high else "") + digits[low] + "_"

    return "_Z1f1AIiiE" + "".join(f"S_I{back_to(n) * 2}E" for n in range(steps))


@pytest.mark.machine
def test_names_of_cpp_equal_nms(tmp_path: Path) -> None:
    (tmp_path / "shop.cc").write_text(CPP)
    command = ["g++", "-std=c++17", "-O0", "-c", "-o", "shop.o", "shop.cc"]
    subprocess.run(command, cwd=tmp_path, check=True)

    def nm(*options: str) -> list[str]:
        command = ["nm", "--no-sort", *options, "shop.o"]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        # The letter of the kind, then the name.
        return [line[17:].split(" ", 1)[1] for line in done.stdout.splitlines()]

    pairs = {m: d for m, d in zip(nm(), nm("--demangle"), strict=True) if m.startswith("_Z")}
    assert {mangled: demangled(mangled) for mangled in pairs} == pairs
    assert any("{lambda(auto:1)#1}::operator()<double>" in name for name in pairs.values())
    assert any("(anonymous namespace)::Box<" in name for name in pairs.values())


@pytest.mark.parametrize(("mangled", "name"), RUST.items())
def test_names_of_rust_are_demangled(mangled: str, name: str) -> None:
    assert demangled(mangled) == name


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z4workv.cold", "work() [clone .cold]"),
        ("_Z4workv.isra.0", "work() [clone .isra.0]"),
        ("_Z4workv.llvm.123", "work()"),
        ("work", "work"),
        ("_Znonsense", "_Znonsense"),
        ("_Rnonsense", "_Rnonsense"),
        ("_Z", "_Z"),
        ("", ""),
        ("_Z4workv\n_Z4playv", "_Z4workv\n_Z4playv"),
        ("_Z4work\0v", "_Z4work\0v"),
        ("_Z4work\udc80", "_Z4work\udc80"),
        ("_ZN" + "1a" * 2045 + "E", "_ZN" + "1a" * 2045 + "E"),
    ],
)
def test_other_names_stay_as_they_are(mangled: str, name: str) -> None:
    assert demangled(mangled) == name


def test_a_long_name_is_demangled_and_a_hostile_one_is_not_tried() -> None:
    assert demangled(f"_Z900{'a' * 900}v") == f"{'a' * 900}()"
    longest = f"_RNvC1a4000{'c' * 4000}"
    assert demangled(longest) == f"a::{'c' * 4000}"
    longer = f"_RNvC1a4095{'c' * 4095}"
    assert demangled(longer) == longer


@pytest.mark.parametrize("steps", [14, 22, 26, 100, 400])
def test_a_name_with_too_long_an_expansion_stays_mangled(steps: int) -> None:
    mangled = doubling(steps)
    assert demangled(mangled) == mangled
    assert demangled(doubling(1)) == "f(A<int, int>, A<A<int, int>, A<int, int> >)"
    assert demangled("_Z4workv") == "work()"


def test_endless_names_of_rust_stay_mangled() -> None:
    for mangled in ("_RINvC1a1bTB_B_EE", "_RNvNtNtCs1234_7mycrate3foo3barE", "_R" + "Nv" * 2000):
        assert demangled(mangled) == mangled
    assert demangled("_RNvC6_123foo3bar") == "123foo::bar"


def test_output_of_the_library_is_not_taken_as_an_answer() -> None:
    # For each, it prints the part that it demangled, the name of the crate: 20 kB in total.
    for number in range(100):
        crate = f"{number:03}" + "c" * 200
        mangled = f"_RINvC203_{crate}3ptrDG0_NtC1a2FnEL_E"
        assert demangled(mangled) == mangled
    assert demangled("_RNvC6_123foo3bar") == "123foo::bar"


def test_the_process_is_started_a_limited_number_of_times(
    own: Demangler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in range(24, 26):
        demangled(doubling(steps))
    assert demangled("_Z4workv") == "work()"
    started = own._starts
    monkeypatch.setattr(demangle, "MAX_STARTS", started)
    own.end()
    assert demangled("_Z4playv") == "_Z4playv"
    assert started <= 3
    assert own._starts == started


def test_a_process_that_was_killed_is_started_again() -> None:
    assert demangled("_Z4workv") == "work()"
    process = demangle.DEMANGLER._process
    assert process is not None
    process.kill()
    process.wait()
    assert demangled("_Z4playv") == "_Z4playv"
    assert demangled("_Z4stopv") == "stop()"


def test_the_demangler_leaves_no_process() -> None:
    code = (
        "from symbolizer.native.demangle import demangled, DEMANGLER\n"
        "print(demangled('_Z4workv'), DEMANGLER._process.pid)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    )
    found = re.fullmatch(r"work\(\) (\d+)\n", done.stdout)
    assert found
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(found[1]), 0)
