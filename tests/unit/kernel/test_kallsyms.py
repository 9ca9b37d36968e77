"""Names of kernel functions, from texts like /proc/kallsyms."""

from pathlib import Path

import pytest

from ebpfprof.kernel.kallsyms import KernelSymbol, KernelSymbols, why_hidden
from ebpfprof.privileges.checks import way_out

CAP_SYSLOG = 34

TEXT = b"""\
0000000000000000 A fixed_percpu_data
0000000000001000 A cpu_debug_store
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000120 t __do_it
ffffffff81000120 T do_it
ffffffff81000120 W do_it_weakly
ffffffff81000200 w weak.cold
ffffffff81000300 T _etext
ffffffff82000000 D data_begins
ffffffffc0300000 t init_it\t[tcp_bbr]
ffffffffc0300040 T bbr_main\t[tcp_bbr]
ffffffffc0300080 r rodata_of_it\t[tcp_bbr]
ffffffffc0200000 t bpf_prog_6deef7357e7b4530_on_sample\t[bpf]
ffffffffc0200abc t bpf_trampoline_6442\t[bpf]
"""


@pytest.mark.parametrize(
    ("address", "name", "module", "start"),
    [
        (0xFFFFFFFF81000000, "_stext", "", 0xFFFFFFFF81000000),
        (0xFFFFFFFF8100011F, "_stext", "", 0xFFFFFFFF81000000),
        (0xFFFFFFFF81000120, "do_it", "", 0xFFFFFFFF81000120),
        (0xFFFFFFFF810001FF, "do_it", "", 0xFFFFFFFF81000120),
        (0xFFFFFFFF81000200, "weak.cold", "", 0xFFFFFFFF81000200),
        (0xFFFFFFFFC0300041, "bbr_main", "tcp_bbr", 0xFFFFFFFFC0300040),
        (0xFFFFFFFFC030003F, "init_it", "tcp_bbr", 0xFFFFFFFFC0300000),
        # These stand behind modules of higher addresses in the file.
        (
            0xFFFFFFFFC0200ABB,
            "bpf_prog_6deef7357e7b4530_on_sample",
            "bpf",
            0xFFFFFFFFC0200000,
        ),
        (0xFFFFFFFFC0200ABC, "bpf_trampoline_6442", "bpf", 0xFFFFFFFFC0200ABC),
    ],
)
def test_a_function_has_the_addresses_up_to_the_next(
    address: int, name: str, module: str, start: int
) -> None:
    assert KernelSymbols(TEXT).at(address) == KernelSymbol(name, module, start)


@pytest.mark.parametrize(
    "address",
    [
        0,
        0x1000,  # no code
        0x7FFF_FFFF_F000,
        0xFFFFFFFF80FFFFFF,  # before all
        0xFFFFFFFF81040300,  # far behind the last function of the kernel proper
        0xFFFFFFFF82000000,
        0xFFFFFFFFC0300080,
        0xFFFFFFFFC0300FFF,  # in data
        0xFFFFFFFFFFFFFFFF,
        -1,
        1 << 64,
    ],
)
def test_other_addresses_have_no_name(address: int) -> None:
    symbols = KernelSymbols(TEXT)
    assert not symbols.hidden
    assert symbols.hidden_text == ""
    assert symbols.at(address) is None


def test_lines_that_are_not_symbols_are_skipped() -> None:
    lines = (b"", b"ffffffff81000010 T", b" ", b"ffffffff81000020 T x", b"ffffffff81000030 T cut")
    odd = b"\n".join(lines)
    symbols = KernelSymbols(odd)
    assert symbols.at(0xFFFFFFFF81000010) is None
    assert symbols.at(0xFFFFFFFF81000035) == KernelSymbol("x", "", 0xFFFFFFFF81000020)


def test_a_global_name_is_preferred_and_one_without_underscores() -> None:
    text = b"".join(
        b"ffffffff81000000 " + each + b"\n"
        for each in (b"W weak", b"t local", b"T __x64_global", b"T _global", b"T _global2", b"D d")
    )
    assert KernelSymbols(text).at(0xFFFFFFFF81000001) == KernelSymbol(
        "_global", "", 0xFFFFFFFF81000000
    )


def test_the_first_of_equally_good_names_is_preferred() -> None:
    text = b"".join(b"ffffffff8100%04x T name%d\n" % (16 * (n % 2), n) for n in range(1000))
    symbols = KernelSymbols(text)
    assert symbols.at(0xFFFFFFFF81000000) == KernelSymbol("name0", "", 0xFFFFFFFF81000000)
    assert symbols.at(0xFFFFFFFF81000010) == KernelSymbol("name1", "", 0xFFFFFFFF81000010)


def test_names_that_are_not_ascii_are_shown_harmless() -> None:
    symbol = KernelSymbols(b"ffffffff81000000 T a\xffb\t[m\xfe]\n").at(0xFFFFFFFF81000000)
    assert symbol == KernelSymbol("a\ufffdb", "m\ufffd", 0xFFFFFFFF81000000)


HIDDEN = b"0000000000000000 T _stext\n0000000000000000 t do_it\t[module]\n"


@pytest.mark.parametrize(
    ("restrict", "capabilities", "text"),
    [
        (
            "2\n",
            {CAP_SYSLOG},
            "(kernel.kptr_restrict is 2). Type:\n    sudo sysctl kernel.kptr_restrict=1",
        ),
        (
            "2\n",
            set(),
            "(kernel.kptr_restrict is 2). Type:\n    sudo sysctl kernel.kptr_restrict=1",
        ),
        ("1\n", set(), f"(CAP_SYSLOG is missing). {way_out()}"),
        ("0\n", set(), f"(CAP_SYSLOG is missing). {way_out()}"),
        (None, set(), f"(CAP_SYSLOG is missing). {way_out()}"),
        ("?\n", {CAP_SYSLOG}, ". Type:\n    sudo sysctl kernel.kptr_restrict=0"),
    ],
)
def test_hidden_addresses_have_a_way_out(
    tmp_path: Path, restrict: str | None, capabilities: set[int], text: str
) -> None:
    path = tmp_path / "kptr_restrict"
    if restrict is not None:
        path.write_text(restrict)
    what = "Functions of the kernel have no names: the kernel hides their addresses"
    separator = "" if text.startswith(".") else " "
    assert why_hidden(path, capabilities) == what + separator + text


def test_hidden_addresses_give_no_names() -> None:
    symbols = KernelSymbols(HIDDEN)
    assert symbols.hidden
    assert symbols.hidden_text == why_hidden()
    assert symbols.at(0) is None
    assert symbols.at(0xFFFFFFFF81000000) is None


def test_a_missing_file_hides_all(tmp_path: Path) -> None:
    symbols = KernelSymbols.read(tmp_path / "kallsyms")
    assert symbols.hidden
    assert symbols.at(0xFFFFFFFF81000000) is None
    assert symbols.hidden_text == (
        f"Functions of the kernel have no names: {tmp_path}/kallsyms can't be read (No such file "
        "or directory). Use a kernel built with CONFIG_KALLSYMS, and mount /proc."
    )
