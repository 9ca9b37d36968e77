"""An explanation, and what changes, as text that fits a small terminal."""

from __future__ import annotations

from ebpfprof.export.tables import explanation as table
from ebpfprof.findings.changes import FindingChange
from ebpfprof.findings.evidence import Evidence, ProgramFacts
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.findings.rules import Explanation
from ebpfprof.profile.diagnosis import diagnosis
from ebpfprof.profile.goroutines import GoroutineDump
from ebpfprof.profile.model import Frame, Profile, ValueType

PID = 1234
NS = ValueType("wall", "nanoseconds")
LINES = (
    "Mutex.Lock in main.(*priceCache).get (main.go:35): 27.3 goroutines wait on average.",
    "Its holder: waits for 10.0.0.7:5432 in main.(*priceCache).refill (cache.go:86) (4 of 5).",
)
FINE = tuple(f"garbage collection of kind {number} 2 %" for number in range(12))


def evidence(*failures: str, name: str = "shop") -> Evidence:
    dump = GoroutineDump(PID, name, "go1.27.3", 0, (), 0, 0, 0)
    return Evidence(
        program=ProgramFacts(PID, name, "go1.27.3"),
        length_ns=10_000_000_000,
        wall=Profile("wall", (NS,), NS, 1, (), (), 0, 10_000_000_000, ()),
        cpu=None,
        dumps=(dump,),
        diagnosis=diagnosis(dump),
        overhead=0.006,
        failures=failures,
    )


def finding(number: int, level: Level = Level.SLOW, kind: str = "hot_lock") -> Finding:
    return Finding(
        kind=kind,
        level=level,
        title=f"Lock main.cache{number}.mu: {90 - number} % of the time of requests.",
        lines=LINES,
        share=0.9,
        next=f"attach --pid {PID} --profile block,mutex --by-lock",
        place=Frame(f"main.get{number}", "/src/main.go", number),
    )


def render(
    *findings: Finding, fine: tuple[str, ...] = FINE, width: int | None = 80, is_long: bool = False
) -> list[str]:
    text = table.render(
        evidence(), Explanation(findings, fine), width, color=False, is_long=is_long
    )
    assert text.endswith("\n")
    return text.splitlines()


def test_one_finding_has_all_of_its_evidence() -> None:
    lines = render(finding(1), fine=("no deadlock", "no leak"))
    assert lines == [
        f"Process {PID} (shop, go1.27.3), 10 s, overhead 0.6 %",
        "",
        "1. Lock main.cache1.mu: 89 % of the time of requests.",
        "   Mutex.Lock in main.(*priceCache).get (main.go:35): 27.3 goroutines wait on",
        "   average.",
        "   Its holder: waits for 10.0.0.7:5432 in main.(*priceCache).refill",
        "   (cache.go:86) (4 of 5).",
        f"   Next: sudo ebpfprof attach --pid {PID} --profile block,mutex --by-lock",
        "",
        "OK: no deadlock, no leak.",
    ]


def test_many_findings_fit_15_lines_and_the_worst_keeps_its_evidence() -> None:
    for number in range(2, 9):
        lines = render(*(finding(each) for each in range(number)))
        assert len(lines) <= 15
        assert max(map(len, lines)) <= 80
        text = "\n".join(lines)
        for shown in range(number):
            assert f"Lock main.cache{shown}.mu: {90 - shown} %" in " ".join(text.split())
        assert lines[3].startswith("   Mutex.Lock in main.(*priceCache).get")
        assert text.count("Next: ") >= 1


def test_all_of_it_is_shown_if_that_is_wanted() -> None:
    lines = render(*(finding(each) for each in range(6)), is_long=True)
    assert sum(line.startswith("   Next: ") for line in lines) == 6
    assert " ".join(" ".join(lines).split()).endswith(f"{FINE[-2]}, {FINE[-1]}.")


def test_what_was_checked_takes_two_lines_below_findings() -> None:
    lines = render(finding(1))
    fine = lines[lines.index("", 2) + 1 :]
    assert len(fine) == 2
    assert fine[-1].endswith(" more.")


def test_a_healthy_process_is_called_so_with_all_that_was_checked() -> None:
    lines = render()
    assert lines[2] == "Nothing is wrong, as far as this shows."
    assert " ".join(lines).endswith(f"{FINE[-1]}.")


def test_long_names_are_shortened_in_the_middle() -> None:
    name = f"main.{'Handler' * 20}Last"
    long = Finding(kind="hang", level=Level.STUCK, title=f"Hang in {name} (main.go:3).")
    lines = render(long)
    assert max(map(len, lines)) <= 80
    assert "main.Handler" in lines[2]
    assert "..." in lines[2]
    assert "Last (main.go:3)" in lines[2]


def test_no_text_of_the_target_controls_the_terminal() -> None:
    bad = Finding(
        kind="hang", level=Level.STUCK, title="Hang in main.\x1b[2J.", lines=("\x1b]0;x\a",)
    )
    explanation = Explanation((bad,), ("\x1b[1m",))
    seen = evidence("\x1b[3m", name="\x1b[4m")
    change = FindingChange("new", bad)
    texts = (
        table.render(seen, explanation, 80, color=False),
        table.summary(seen, explanation),
        table.change_line(seen, change, 0.0, of_process=True),
    )
    for text in texts:
        assert all(line.isprintable() for line in text.splitlines())


def test_titles_have_the_color_of_their_level() -> None:
    text = table.render(
        evidence(), Explanation((finding(1, Level.STUCK), finding(2)), ()), 80, color=True
    )
    assert "\x1b[1;31m1. Lock main.cache1.mu: 89 % of the time of requests.\x1b[0m\n" in text
    assert "\x1b[1;33m2. Lock main.cache2.mu" in text


def test_a_change_is_a_line_with_the_process_if_there_are_several() -> None:
    change = FindingChange("gone", finding(1))
    line = table.change_line(evidence(), change, 0.0, of_process=False)
    assert line[8:] == " gone: Lock main.cache1.mu: 89 % of the time of requests."
    line = table.change_line(evidence(), change, 0.0, of_process=True)
    assert line[8:].startswith(f" {PID} (shop) gone: Lock main.cache1.mu")


def test_no_line_is_broken_within_a_quantity() -> None:
    fine = ("disk 0 %", "run queue 250 us (p99)", "heap 8.0 MiB larger", "0.05 CPUs used")
    words = "Pool: 280 ± 50 times a second, about 17 ms each."
    for width in range(40, 80):
        one = Finding(kind="hot_lock", level=Level.SLOW, title=words)
        for lines in (render(one, fine=fine, width=width), render(fine=fine, width=width)):
            assert "\N{NO-BREAK SPACE}" not in "".join(lines)
            for line in lines:
                first = line.split()[0].rstrip(".,") if line else ""
                assert first not in {"%", "us", "MiB", "CPUs", "±", "50", "ms"}
