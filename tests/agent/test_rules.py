"""Rules: what Prometheus's relabelling does with the same rules and labels."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebpfprof.agent.rules import MAX_VALUE, Labelled, applied, compiled
from ebpfprof.agent.settings_file import parsed

LABELS = {"service": "shop", "__meta_process_name": "shopd", "__meta_node": "n1", "zone": "Eu"}


def ruled(*rules: str, labels: dict[str, str] | None = None) -> Labelled:
    text = "\n".join("[[rules]]\n" + rule.replace("; ", "\n") for rule in rules)
    return applied(parsed(text, "a.toml").rules, LABELS if labels is None else labels)


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("target = 'tier'; replacement = 'web'", {"tier": "web"}),
        ("source = 'zone'; target = 'region'", {"region": "Eu"}),
        (
            "source = ['service', '__meta_node']; regex = '(.*);n(.*)'; target = 'service'; "
            "replacement = '${1}-$2-$$x'",
            {"service": "shop-1-$x"},
        ),
        (
            "source = ['service', '__meta_node']; separator = '@'; target = 'at'",
            {"at": "shop@n1"},
        ),
        ("source = 'zone'; regex = 'E'; target = 'zone'; replacement = 'x'", {}),  # not all of it
        ("source = 'zone'; regex = 'Eu'; target = 'zone'; replacement = ''", {"zone": None}),
        (
            "source = 'zone'; regex = '(?P<a>.)(.)'; target = '${a}_${2}'; replacement = 'x'",
            {"E_u": "x"},
        ),
        ("source = 'zone'; regex = '(.*)'; target = '$1 !'; replacement = 'x'", {}),
        ("source = 'missing'; target = 'zone'", {"zone": None}),
        ("source = 'zone'; target = 'zone'; replacement = '$7'", {"zone": None}),
        ("action = 'lowercase'; source = 'zone'; target = 'zone'", {"zone": "eu"}),
        ("action = 'uppercase'; source = 'zone'; target = 'zone'", {"zone": "EU"}),
        (
            "action = 'labelmap'; regex = '__meta_(process_name|node)'; replacement = 'm_$1'",
            {"m_process_name": "shopd", "m_node": "n1"},
        ),
        ("action = 'labelmap'; regex = '(zone)'; replacement = '$1 !'", {}),
        ("action = 'labeldrop'; regex = 'zo.*'", {"zone": None}),
        (
            "action = 'labelkeep'; regex = 'service|__.*'",
            {"zone": None},
        ),
    ],
)  # fmt: skip
def test_a_rule_changes_labels(rule: str, changes: dict[str, str | None]) -> None:
    expected = {name: value for name, value in (LABELS | changes).items() if value is not None}
    assert ruled(rule) == Labelled(expected)


@pytest.mark.parametrize(
    ("rule", "dropped"),
    [
        ("action = 'keep'; source = 'service'; regex = 'shop|till'", False),
        ("action = 'keep'; source = 'service'; regex = 'sho'", True),
        ("action = 'drop'; source = 'service'; regex = 'shop'", True),
        ("action = 'drop'; source = 'service'; regex = 'sh'", False),
        ("action = 'keep'; source = 'missing'; regex = '.+'", True),
    ],
)
def test_a_rule_keeps_or_drops(rule: str, dropped: bool) -> None:
    assert ruled("target = 'x'; replacement = 'y'", rule).dropped_by == (2 if dropped else 0)


def test_rules_see_what_those_before_made() -> None:
    found = ruled(
        "source = 'service'; target = 'service'; replacement = '$1-eu'",
        "action = 'drop'; source = 'service'; regex = 'shop-eu'",
        "target = 'never'; replacement = 'reached'",
    )
    assert found.dropped_by == 2
    assert "never" not in found.labels


@pytest.mark.parametrize("text", ["(a+)+", "(a*b)*", "((a|b)+c?){3,}", "(?:x{2,99})*", "(a+?)*"])
def test_expressions_that_can_take_for_ever_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a repetition repeats a repetition"):
        compiled(text)


def test_a_long_expression_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 1024 characters"):
        compiled("a" * 1025)


@pytest.mark.parametrize("text", ["a+b*", "(ab)+", "(a|b)*", "(a{1,3}-)+", "[a-z]+(-[0-9])?"])
def test_other_expressions_are_taken(text: str) -> None:
    assert compiled(text).pattern == text


@settings(max_examples=20)
@given(st.dictionaries(st.text(max_size=5), st.text(max_size=50), max_size=5))
def test_values_are_bounded(labels: dict[str, str]) -> None:
    found = ruled(
        "source = ['a', 'b']; target = 'c'; replacement = '$1$1'",
        labels={**labels, "a": "x" * 5000, "b": "y"},
    )
    assert len(found.labels["c"]) == MAX_VALUE
    assert all(len(label) <= MAX_VALUE for label in found.labels.values())


def test_what_is_matched_is_bounded_too() -> None:
    joined = ruled(
        f"source = ['a', 'b']; regex = 'x{{{MAX_VALUE}}}'; target = 'd'; replacement = 'cut'",
        labels={"a": "x" * 5000, "b": "y"},
    )
    assert joined.labels["d"] == "cut"
