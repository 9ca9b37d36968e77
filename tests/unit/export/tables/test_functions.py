"""The table of functions, as of a CPU profile."""

from __future__ import annotations

from ebpfprof.export.tables import functions
from ebpfprof.export.tables.functions import FunctionSums, function_sums
from ebpfprof.export.tables.largest import render
from ebpfprof.profile.model import Frame, Location, Profile, Sample
from ebpfprof.profilers.cpu.kind import CPU


def location(address: int, *functions: str) -> Location:
    return Location(address, None, tuple(Frame(name, "a.go", 1) for name in functions))


LEAF, MIDDLE, ROOT = location(1, "leaf"), location(2, "inlined", "middle"), location(3, "root")
SAMPLES = (
    Sample((LEAF, MIDDLE, ROOT), (2, 20_000_000)),
    Sample((MIDDLE, MIDDLE, ROOT), (1, 10_000_000)),
    Sample((ROOT,), (1, 10_000_000)),
)


def profile(*samples: Sample) -> Profile:
    return CPU.make_profile(samples, (), period=10_000_000, time_ns=1, duration_ns=10**9)


def test_functions_have_flat_and_cumulative_time() -> None:
    assert function_sums(SAMPLES) == [
        FunctionSums("leaf", "a.go", 20_000_000, 20_000_000),
        FunctionSums("root", "a.go", 10_000_000, 40_000_000),
        FunctionSums("inlined", "a.go", 10_000_000, 30_000_000),
        FunctionSums("middle", "a.go", 0, 30_000_000),
    ]


def test_the_table_leaves_out_functions_without_time_of_their_own() -> None:
    assert render(profile(*SAMPLES), width=80, color=False) == (
        "    CPU  Share      Cum   Share  Function\n"
        "20.0 ms  50.0%  20.0 ms   50.0%  leaf\n"
        "10.0 ms  25.0%  40.0 ms  100.0%  root\n"
        "10.0 ms  25.0%  30.0 ms   75.0%  inlined\n"
        "40.0 ms in all\n"
    )


def test_estimates_have_their_errors_beside_them() -> None:
    """Of the value that is shown first; with a tenth of error, the third digit is not known."""
    estimates = [
        Sample((LEAF,), (1, 1_234_000), variance=123_400.0**2),
        Sample((ROOT,), (1, 1_000_000)),
    ]
    assert render(profile(*estimates), width=80, color=False) == (
        "    CPU  Error  Share      Cum  Share  Function\n"
        " 1.2 ms  +-10%  55.2%  1.23 ms  55.2%  leaf\n"
        "1.00 ms         44.8%  1.00 ms  44.8%  root\n"
        "2.23 ms in all\n"
    )
    counts = functions.render(profile(*estimates), index=0, width=80, color=False)
    assert "Error" not in counts


def test_functions_beyond_the_limit_are_counted() -> None:
    text = functions.render(profile(*SAMPLES), limit=1, width=80, color=False)
    assert text.splitlines()[-1] == "40.0 ms in all; 2 more functions"


def test_names_fit_the_terminal_and_do_not_control_it() -> None:
    long = Sample((location(1, "\x1b[31m" + "x" * 600),), (1, 10_000_000))
    text = render(profile(long), width=80, color=False)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "..." in text


def test_the_table_says_that_a_program_used_no_time() -> None:
    assert "no CPU time" in render(profile(), width=80, color=False)
