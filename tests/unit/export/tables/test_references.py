"""What keeps objects alive, as text: the answer is in the first lines."""

from __future__ import annotations

from ebpfprof.export import references as exported
from ebpfprof.export.tables import references as table
from ebpfprof.profile.references import (
    Cut,
    Example,
    LeakedGoroutines,
    Path,
    Reasons,
    References,
    RootPaths,
)

DATA = Path.of(".data", "[]uint8", 1000, 64_000_000, ())
SESSIONS = Path.of("[]", "main.session", 1000, 64_000, (DATA,))
CACHE = Path.of("main.cache", "map[string]*main.session", 3, 20_000, (SESSIONS,))
WORKERS = Path.of("goroutine main.work [select]", "", 10, 1000, ())
FOUND = References(
    (RootPaths("variable", CACHE), RootPaths("goroutine", WORKERS, (7, 9))), 2013, 64_085_000
)


def test_the_answer_comes_first() -> None:
    text = table.render(FOUND, "process 1 (x, go1.27.3)", width=None, color=False)
    first, second, third, *_ = text.splitlines()
    assert first == ("61.1 MiB in 2,013 objects are reachable in process 1 (x, go1.27.3):")
    assert second == (
        "main.cache (map[string]*main.session) keeps 61.1 MiB (100 %): "
        "1,000 []uint8 (61.0 MiB) below main.session.data"
    )
    assert third.startswith("2 goroutines: goroutine main.work [select] keeps 1000 B")


def test_what_is_missing_is_reported() -> None:
    leaked = LeakedGoroutines(tuple(range(1, 8)), objects=7, used=7000)
    missing = References(FOUND.roots, 2013, 64_085_000, 5, 5000, 1 << 31, 3, leaked)
    text = table.render(missing, "process 1", width=None, color=False)
    assert "7 goroutines can never continue" in text
    assert "Only they keep 6.84 KiB. Ids: 1, 2, 3, 4, 5, ...; dump" in text
    assert "4.88 KiB in 5 objects belong to no path" in text
    assert "2.00 GiB of the heap are missing" in text
    assert "3 goroutines could not be read" in text


def test_a_tree_is_indented_and_fits() -> None:
    text = table.render(FOUND, "process 1", width=80, color=False)
    assert max(map(len, text.splitlines())) <= 80
    (line,) = (line for line in text.splitlines() if line.endswith("  .data ([]uint8)"))
    assert "1,000" in line


def test_reasons() -> None:
    cuts = (Cut("main.cache", "map", 1, 5, 5000), Cut(".next", "main.node", 12, 0, 0))
    reasons = Reasons(
        "main.session",
        2,
        128,
        4,
        256,
        ((("main.cache (map)", "[] (main.session)"), 2, 128),),
        (Example(0xC000, 64, cuts),),
    )
    text = table.render_reasons(reasons, width=None)
    assert "main.session: 2 reachable objects, 128 B" in text
    assert "main.cache (map): without it, 4.88 KiB in 5 objects would be freed" in text
    assert ".next (main.node), 12 in a row: others keep the same" in text
    assert "no reachable object" in table.render_reasons(Reasons("x", 0, 0, 0, 0), width=None)


def test_a_sample_is_a_path() -> None:
    profile = exported.profile(FOUND, "/bin/x", 0)
    stacks = {
        tuple(frame.function for frame in sample.frames): sample.values
        for sample in profile.samples
    }
    path = (".data ([]uint8)", "[] (main.session)", "main.cache (map[string]*main.session)")
    assert stacks[path] == (1000, 64_000_000)
    assert sum(values[1] for values in stacks.values()) == FOUND.used
