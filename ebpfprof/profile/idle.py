"""Finds the idle waits of a profile, such as those of a worker for work, and says why they are.

The rules are data (data/idle.toml), including the kinds of profiles that they apply to. They go by
names; waits that no rule names may be idle by behaviour (profile.behaviour). A wait that may be a
problem is never idle: hiding a problem is worse than showing too much. So we always show sends,
locks and all waits of a request.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

from ebpfprof.profile.behaviour import IdleBehaviour
from ebpfprof.profile.function_names import CLOSURE, owner, package, plain_names
from ebpfprof.profile.handlers import is_request
from ebpfprof.profile.model import Frame, Kind, Location, Profile, Sample
from ebpfprof.profile.operations import waiting_part

_DATA: Final = "data/idle.toml"
_MAX_CACHED: Final = 1 << 16
# Go up to 1.22 cuts stacks there: the last frame may not be the goroutine's own function.
_MAX_KNOWN_DEPTH: Final = 31
# A goroutine that waits in or near the function that it was started with has a short stack.
_MAX_SHORT: Final = 8
_UNKNOWN: Final = ""
_NO_FRAMES: Final = (Frame(_UNKNOWN, "", 0),)

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True)
class IdleRule:
    """A rule that finds idle waits. `reason` is a sentence: why these waits are no problem.

    It applies to profiles of `kinds`, and to `operations`, by their names in data/idle.toml.
    `calls` are the functions that called the operation, innermost first; `within` are some that
    stand anywhere on the stack. `goroutines` are functions that goroutines are started with and
    that wait themselves. `shape` is "runtime", "main", "worker" or "".
    """

    name: str
    reason: str
    kinds: tuple[Kind, ...]
    operations: tuple[str, ...]
    calls: tuple[tuple[str, ...], ...] = ()
    within: tuple[tuple[str, ...], ...] = ()
    goroutines: tuple[str, ...] = ()
    shape: str = ""


@dataclass(frozen=True, slots=True)
class Hidden:
    """The waits of a profile that one rule hides: their number and their delay in all."""

    rule: IdleRule
    count: int
    delay_ns: int


def rules() -> tuple[IdleRule, ...]:
    """All rules, in the order in which we try them."""
    return _rules().all


def rule_of(profile_kind: Kind, sample: Sample, known: IdleRules | None = None) -> IdleRule | None:
    """The rule that makes a sample of a profile of this kind idle; None if it is not idle.

    `known` are the rules, by default those of data/idle.toml.
    """
    locations = waiting_part(sample)
    if not locations:
        return None
    known = known or _rules()
    leaf = locations[0].frames
    operation = known.operations.get(leaf[0].function) if leaf else None
    if operation is None:
        return None
    is_long = len(locations) > _MAX_SHORT and operation not in known.deep
    if is_long and not sample.behaviour and not known.may_be_called(_names(locations[:3])):
        return None
    names = _names(locations)
    rule = known.find(operation, names)
    if rule is None and sample.behaviour and not is_request(names):
        rule = known.of_behaviour(operation, names, sample.behaviour)
    return rule if rule and profile_kind in rule.kinds else None


def _names(locations: Iterable[Location]) -> list[str]:
    """The plain names of all logical frames except wrappers, leaf first."""
    return plain_names(frame for location in locations for frame in (location.frames or _NO_FRAMES))


def split(profile: Profile) -> tuple[Profile, list[Hidden]]:
    """The profile without idle waits, and the hidden waits by rule, longest first.

    A profile without idle waits comes back unchanged. Kinds that rules name must have values
    (count, nanoseconds).
    """
    kept = []
    sums: dict[str, tuple[IdleRule, int, int]] = {}
    for sample in profile.samples:
        rule = rule_of(profile.kind, sample)
        if rule is None:
            kept.append(sample)
        else:
            _, count, delay_ns = sums.get(rule.name, (rule, 0, 0))
            sums[rule.name] = rule, count + sample.values[0], delay_ns + sample.values[-1]
    hidden = [Hidden(*sums_of_rule) for sums_of_rule in sums.values()]
    hidden.sort(key=lambda row: (-row.delay_ns, row.rule.name))
    return (replace(profile, samples=tuple(kept)) if hidden else profile), hidden


class IdleRules:
    """Rules as in data/idle.toml, indexed by what they look for."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.operations: dict[str, str] = {
            function: name
            for name, functions in data["operations"].items()
            for function in functions
        }
        self._parts = frozenset(data["parts_of_operations"]["functions"])
        self._runners = frozenset(data["runners"]["functions"])
        words = data["words"]
        self._starting = frozenset(words["starting"])
        self._starting_functions = frozenset(words["starting_functions"])
        self._looping = frozenset(words["looping"])
        self._looping_last = frozenset(words["looping_last"])
        self._staying_in_main = frozenset(words["staying_in_main"])
        self._tasks = frozenset(words["tasks"])
        self.all = tuple(_rule(rule, data["kinds"]) for rule in data["rule"])
        self._kinds: tuple[Kind, ...] = tuple(data["kinds"])
        self._by_behaviour = tuple(data["by_behaviour"]["operations"])
        self._by_call: dict[str, list[tuple[tuple[str, ...], IdleRule]]] = {}
        self._by_goroutine: dict[str, list[IdleRule]] = {}
        self._by_shape: dict[tuple[str, str], IdleRule] = {}
        self._by_outermost: dict[str, list[tuple[tuple[str, ...], IdleRule]]] = {}
        self.deep = {operation for rule in self.all if rule.within for operation in rule.operations}
        for rule in self.all:
            for functions in rule.within:
                self._by_outermost.setdefault(functions[-1], []).append((functions, rule))
            for call in rule.calls:
                self._by_call.setdefault(call[0], []).append((call, rule))
            for goroutine in rule.goroutines:
                self._by_goroutine.setdefault(goroutine, []).append(rule)
            for operation in rule.operations if rule.shape else ():
                self._by_shape[rule.shape, operation] = rule

    def find(self, operation: str, stack: Sequence[str]) -> IdleRule | None:
        """The rule for a stack of plain names, leaf first, whose leaf is `operation`."""
        behind = self._behind(stack)
        rule = self._of_call(operation, behind) or self._within(operation, behind)
        if rule is None and len(stack) <= _MAX_KNOWN_DEPTH:
            rule = self._of_goroutine(operation, self._without_runners(behind))
        # Last, since it visits the whole stack, and few stacks get here.
        return None if rule is None or is_request(stack) else rule

    def of_behaviour(
        self, operation: str, stack: Sequence[str], behaviour: IdleBehaviour
    ) -> IdleRule | None:
        """The rule for a wait that is idle by behaviour; None for operations that never are."""
        if operation not in self._by_behaviour:
            return None
        place = next((f"{name}: " for name in self._behind(stack)), "")
        return IdleRule(behaviour.name, f"{place}{behaviour}.", self._kinds, self._by_behaviour)

    def may_be_called(self, stack: Sequence[str]) -> bool:
        """Whether the `calls` of some rule begin with the caller of the operation."""
        behind = self._behind(stack)
        return bool(behind) and owner(behind[0]) in self._by_call

    def _behind(self, stack: Sequence[str]) -> Sequence[str]:
        first = 1
        while first < len(stack) - 1 and stack[first] in self._parts:
            first += 1
        return stack[first:]

    def _of_call(self, operation: str, behind: Sequence[str]) -> IdleRule | None:
        for call, rule in self._by_call.get(owner(behind[0]), ()) if behind else ():
            if operation in rule.operations and _is_called(call, behind):
                return rule
        return None

    def _within(self, operation: str, behind: Sequence[str]) -> IdleRule | None:
        for at, name in enumerate(behind if operation in self.deep else ()):
            for functions, rule in self._by_outermost.get(owner(name), ()):
                inner = behind[max(at + 1 - len(functions), 0) : at + 1]
                if operation in rule.operations and _is_called(functions, inner):
                    return rule
        return None

    def _of_goroutine(self, operation: str, body: Sequence[str]) -> IdleRule | None:
        """The rule for a goroutine; `body` has the functions from the waiting one outwards."""
        if len(body) == 1:
            for rule in self._by_goroutine.get(owner(body[0]), ()):
                if operation in rule.operations:
                    return rule
        shape = self._shape(body)
        return self._by_shape.get((shape, operation)) if shape else None

    def _shape(self, body: Sequence[str]) -> str:
        if not body:
            return ""
        if all(name.startswith("runtime.") for name in body):
            return "runtime"
        if body[-1] == "runtime.main":
            return "main" if self._waits_in_main(body[:-1]) else ""
        return "worker" if self._is_worker(body) else ""

    def _waits_in_main(self, body: Sequence[str]) -> bool:
        """Whether main.main waits, or a function that it calls to wait for the program's end."""
        if body[-1] != "main.main" or len(body) > 2:
            return False
        name = body[0]
        if len(body) == 1 or name in self._starting_functions:
            return True
        words = _words(_parts(name)[-1])
        return package(name) == "main" and not self._staying_in_main.isdisjoint(words)

    def _is_worker(self, body: Sequence[str]) -> bool:
        """Whether a goroutine waits in the function that it was started with, a long-lived one.

        Or right below it, if that is a closure that only calls the long-lived function.
        """
        if len(body) == 1:
            return self._is_loop(body[0]) or self._is_started_to_stay(body[0])
        if len(body) == 2:
            return self._is_started_to_stay(body[1]) and self._is_loop(body[0])
        return False

    def _is_loop(self, name: str) -> bool:
        """Whether a name is that of a function that loops for ever, not of one for a task."""
        if CLOSURE.search(name):
            return False
        *around, function = _parts(name)
        words = _words(function)
        if not words or self._is_of_task(around):
            return False
        if not self._looping.isdisjoint(words):
            return True
        return words[-1] in self._looping_last and self._tasks.isdisjoint(words)

    def _is_started_to_stay(self, name: str) -> bool:
        """Whether a name is that of a closure in a function that starts something long-lived.

        Not in a function that does a task. A closure in a closure may belong to a request handler,
        a closure in a loop to a task.
        """
        closure = CLOSURE.search(name)
        if closure is None or closure["inner"]:
            return False
        outer = name[: closure.start()]
        if outer in self._starting_functions:
            return True
        *around, function = _parts(outer)
        words = _words(function)
        if not words or not self._tasks.isdisjoint(words) or self._is_of_task(around):
            return False
        return words[0] in self._starting

    def _is_of_task(self, around: Iterable[str]) -> bool:
        """Whether the type of a receiver, or an outer function, is for a task by its name."""
        for part in around:
            words = _words(part)
            # A type JobRunner is not a job.
            if not self._tasks.isdisjoint(words[-1:] if part.startswith("(") else words):
                return True
        return False

    def _without_runners(self, behind: Sequence[str]) -> Sequence[str]:
        """The frames without runners: functions like pprof.Do that only call another one."""
        body = list(behind)
        while len(body) > 1 and owner(body[-1]) in self._runners:
            body.pop()
        if len(body) > 2 and body[-2] == _LABELLED and body[-3].startswith(f"{body[-1]}."):
            del body[-3:-1]
        return body


_LABELLED: Final = "runtime/pprof.Do"


def _is_called(call: Sequence[str], behind: Sequence[str]) -> bool:
    return len(call) <= len(behind) and all(
        owner(name) == wanted for name, wanted in zip(behind, call, strict=False)
    )


@lru_cache(_MAX_CACHED)
def _parts(name: str) -> list[str]:
    """The parts after the package: "main.(*Pool).work" gives ["(*Pool)", "work"]."""
    return name[len(package(name)) + 1 :].split(".")


@lru_cache(_MAX_CACHED)
def _words(name: str) -> tuple[str, ...]:
    """The words of a name: "(*Pool).startWorker2" gives ("pool", "start", "worker")."""
    return tuple(word.lower() for word in _WORD.findall(name))


@cache
def _rules() -> IdleRules:
    text = files("ebpfprof").joinpath(_DATA).read_text(encoding="utf-8")
    return IdleRules(tomllib.loads(text))


def _rule(data: dict[str, Any], kinds: Sequence[Kind]) -> IdleRule:
    """A rule of the file; it applies to `kinds` unless it names its own."""
    calls = (call if isinstance(call, list) else [call] for call in data.get("calls", ()))
    within = map(tuple, data.get("within", ()))
    return IdleRule(
        name=data["name"],
        reason=data["reason"],
        kinds=tuple(data.get("kinds", kinds)),
        operations=tuple(data["operations"]),
        calls=tuple(map(tuple, calls)),
        within=tuple(within),
        goroutines=tuple(data.get("goroutines", ())),
        shape=data.get("shape", ""),
    )
