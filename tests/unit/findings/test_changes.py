"""Which findings are new, still there, or gone, from one observation to the next."""

from __future__ import annotations

from ebpfprof.findings.changes import FindingChanges, by_place
from ebpfprof.findings.finding import Finding, Level
from ebpfprof.profile.model import Frame


def finding(line: int, share: float = 0.5, kind: str = "hot_lock") -> Finding:
    return Finding(
        kind=kind,
        level=Level.SLOW,
        title=f"Lock main.mu: {share}",
        share=share,
        place=Frame("main.get", "/src/main.go", line),
    )


def kinds(changes: FindingChanges[Finding], *findings: Finding) -> list[str]:
    return [change.kind for change in changes.add(by_place(findings))]


def test_findings_are_the_same_by_kind_and_place() -> None:
    changes = FindingChanges[Finding]()
    assert kinds(changes, finding(1), finding(2)) == ["new", "new"]
    later = (finding(2, 0.9), finding(3), finding(3), finding(2, kind="convoy"))
    found = changes.add(by_place(later))
    assert [(one.kind, one.finding) for one in found] == [
        ("still", later[0]),
        ("new", later[1]),
        ("new", later[2]),
        ("new", later[3]),
    ]


def test_a_finding_is_gone_once_two_observations_in_a_row_lack_it() -> None:
    changes = FindingChanges[Finding]()
    kinds(changes, finding(1, 0.3))
    assert kinds(changes, finding(1, 0.2), finding(2)) == ["still", "new"]
    assert kinds(changes, finding(2)) == ["still"]
    (gone,) = [one for one in changes.add(by_place([finding(2)])) if one.kind != "still"]
    assert (gone.kind, gone.finding) == ("gone", finding(1, 0.2))
    assert list(changes.lasting.values()) == [finding(2)]
    assert kinds(changes, finding(1)) == ["new"]


def test_one_that_comes_and_goes_stays() -> None:
    changes = FindingChanges[Finding]()
    assert kinds(changes, finding(1)) == ["new"]
    for _ in range(5):
        assert kinds(changes) == []
        assert list(changes.lasting.values()) == [finding(1)]
        assert kinds(changes, finding(1)) == ["still"]
