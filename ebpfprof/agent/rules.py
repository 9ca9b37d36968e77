"""Rules that select processes and set their labels, like Prometheus's relabelling.

A rule joins the values of its source labels and matches them, as a whole, with a regular
expression. Rules are applied in order, each to the result of the previous ones. Labels that begin
with "__" are for rules only: no sink gets them.

Python's regular expressions can take exponential time if a repetition repeats a repetition, and
the values come from processes that may be hostile. Such expressions are refused, and values are
cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from re import _constants as constants  # type: ignore[attr-defined]  # Python's own, not typed
from re import _parser as parser  # type: ignore[attr-defined]  # nothing else parses what re takes
from typing import Any, Final

from ebpfprof.settings.setting import setting
from ebpfprof.settings.values import LABEL_NAME, ConvertedValue, ListValue, TextValue, WordValue

ACTIONS: Final = (
    *("replace", "keep", "drop", "labelmap", "labeldrop", "labelkeep"),
    *("lowercase", "uppercase"),
)
HIDDEN: Final = "__"
"""The prefix of labels that are for rules only."""
MAX_VALUE: Final = 1024
_REFERENCE: Final = re.compile(r"\$(?:(\$)|([0-9]{1,2})|\{([A-Za-z_0-9]+)\})")
_MANY: Final = 16


@dataclass(frozen=True, slots=True)
class Labelled:
    """What the rules made of the labels of a process.

    `dropped_by` is the number of the rule that dropped it, from 1 on; 0 if it is kept.
    """

    labels: Mapping[str, str]
    dropped_by: int = 0


def _repeats_repetition(parsed: Iterable[Any], *, inside: bool) -> bool:
    """Whether a parsed expression has an unbounded repetition within another one."""
    for operation, argument in parsed:
        is_many = False
        if operation in (constants.MAX_REPEAT, constants.MIN_REPEAT):
            is_many = argument[1] is constants.MAXREPEAT or argument[1] > _MANY
        if is_many and inside:
            return True
        for part in _parts(argument):
            if _repeats_repetition(part, inside=inside or is_many):
                return True
    return False


def _parts(argument: Any) -> Iterable[Any]:  # noqa: ANN401 - of Python's own parser
    """The parsed expressions within an operation's argument."""
    if isinstance(argument, parser.SubPattern):
        yield argument
    elif isinstance(argument, tuple | list):
        for part in argument:
            yield from _parts(part)


def compiled(text: str) -> re.Pattern[str]:
    """A regular expression. Raises ValueError with the reason."""
    if len(text) > MAX_VALUE:
        raise ValueError(f"longer than {MAX_VALUE} characters")
    try:
        pattern = re.compile(text, re.DOTALL)
        is_nested = _repeats_repetition(parser.parse(text, re.DOTALL), inside=False)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if is_nested:
        raise ValueError(
            "a repetition repeats a repetition, as in (a+)+, which can take forever on some texts"
        )
    return pattern


@dataclass(frozen=True, slots=True)
class Rule:
    """One of [[rules]]."""

    action: str = setting(WordValue(lambda: ACTIONS), "replace", "What the rule does.")
    source: tuple[str, ...] = setting(
        ListValue(TextValue("a name of a label", LABEL_NAME), "names of labels", may_be_text=True),
        (),
        "The labels whose values are joined and matched.",
    )
    regex: re.Pattern[str] = setting(  # noqa: RUF009 - a field
        ConvertedValue("a regular expression", compiled, shows_reason=True),
        compiled("(.*)"),
        "The expression that the joined values must match as a whole; for labelmap, labeldrop and "
        "labelkeep, the name of each label.",
    )
    target: str = setting(
        TextValue("a name of a label", may_be_empty=True), "", "The label to set."
    )
    replacement: str = setting(
        TextValue(may_be_empty=True), "$1", "The new value; $1 or ${name} stand for groups."
    )
    separator: str = setting(TextValue(may_be_empty=True), ";", "The text between joined values.")


def applied(rules: Sequence[Rule], labels: Mapping[str, str]) -> Labelled:
    """Apply the rules in order to the labels of a process."""
    result = {name: value[:MAX_VALUE] for name, value in labels.items()}
    for number, rule in enumerate(rules, 1):
        if not _apply(rule, result):
            return Labelled(result, number)
    return Labelled(result)


def _apply(rule: Rule, labels: dict[str, str]) -> bool:
    """Apply one rule; False drops the process."""
    if rule.action in ("labelmap", "labeldrop", "labelkeep"):
        _apply_to_names(rule, labels)
        return True
    joined = rule.separator.join(labels.get(name, "") for name in rule.source)[:MAX_VALUE]
    match = rule.regex.fullmatch(joined)
    if rule.action in ("keep", "drop"):
        return (match is not None) == (rule.action == "keep")
    if rule.action in ("lowercase", "uppercase"):
        _set(labels, rule.target, joined.lower() if rule.action == "lowercase" else joined.upper())
    elif match is not None:
        target = _expanded(rule.target, match)
        if LABEL_NAME.fullmatch(target):
            _set(labels, target, _expanded(rule.replacement, match))
    return True


def _apply_to_names(rule: Rule, labels: dict[str, str]) -> None:
    for name, value in list(labels.items()):
        match = rule.regex.fullmatch(name)
        if rule.action == "labelmap" and match is not None:
            new = _expanded(rule.replacement, match)
            if LABEL_NAME.fullmatch(new):
                _set(labels, new, value)
        elif (match is not None) == (rule.action == "labeldrop") and rule.action != "labelmap":
            del labels[name]


def _set(labels: dict[str, str], name: str, value: str) -> None:
    """Set a label; an empty value removes it."""
    if value:
        labels[name] = value[:MAX_VALUE]
    else:
        labels.pop(name, None)


def _expanded(template: str, match: re.Match[str]) -> str:
    def group(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        try:
            return match[int(name) if name.isdigit() else name] or ""
        except IndexError:
            return ""

    return _REFERENCE.sub(group, template)[:MAX_VALUE]
