"""Handlers: the functions of a program that a server or the consumer of a queue calls.

The rules are data (data/handlers.toml): which functions of frameworks call handlers. They go by
names. Between two of these functions stands middleware, so the handler is what the innermost of
them calls. Where a framework itself waits or works for a request, there is no handler on the stack,
or only middleware that belongs to the framework: that time has the framework's name.

A goroutine that a handler has started has a stack of its own. Its functions tell its creation site
where the compiler has made one for the go statement: a closure in the handler, or a wrapper
(`go f(x)`). A goroutine that was started as `go f()`, or by a function that the handler called,
belongs to no handler.
"""

from __future__ import annotations

import re
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain
from typing import Any, Final, NamedTuple

from ebpfprof.profile.function_names import CLOSURE, owner, package, plain, plain_names
from ebpfprof.profile.model import Frame, Label, Profile, Sample
from ebpfprof.profile.operations import is_in_library
from ebpfprof.profile.wakers import waiter_of

HANDLER: Final = "handler"
"""The key of the label with a sample's handler."""
OTHER_HANDLERS: Final = "(other handlers)"
"""The name of all handlers of which there are too many for names of their own."""

_DATA: Final = "data/handlers.toml"
_MAX_CACHED: Final = 1 << 16
_MOST_HANDLERS: Final = 1 << 14
_METHOD: Final = ".ServeHTTP"
_BELOW: Final = "/..."
# What a method that is called by reflection has between it and its caller (Go 1.19 to 1.27).
_REFLECTION: Final = ("reflect.", "runtime.")
# Go up to 1.22 cuts stacks there: the frames of the server may be missing.
_CUT_DEPTH: Final = 32
_POINTER = re.compile(r"\(\*([^()]+)\)")
_ARGUMENTS = re.compile(r"\[.*\]")
# What protoc-gen-go-grpc names the function that calls a method: package._Service_Method_Handler. A
# word of protobuf keeps an underscore only in front of a capital or a digit.
_METHOD_OF_GRPC = re.compile(r"\._(?P<service>\w+)_(?P<method>[^_\W]+)_Handler(?:\.func\d*)?$")
# What the compiler adds to the name of a function for a closure, a go statement or a loop in it.
_INNER = re.compile(
    r"(?:(?:\.\d+)?\.func\d+|\.(?:go|defer)wrap\d+|·d?wrap·\d+|-range\d+|\.\d+|-fm)$"
)


class Handler(NamedTuple):
    """A handler: its name, and its function as in Frame.function.

    The name of a closure has its place: "main.routes.func3 (routes.go:41)". Without a function, it
    is time of a framework: "[gin]". `method` is the method of gRPC that called it, as in
    "Health/Check"; "" if there is none on the stack.
    """

    name: str
    function: str
    method: str = ""


@dataclass(frozen=True, slots=True)
class Framework:
    """A server, router or consumer: see data/handlers.toml."""

    name: str
    calls: tuple[str, ...]
    packages: tuple[str, ...]
    goroutines: tuple[str, ...] = ()
    polls: bool = False

    def has(self, function: str) -> bool:
        """Whether a function, a plain name, is a part of it and no handler."""
        if _is_method(function):
            return False
        path = package(function)
        return any(
            path == known or (known.endswith(_BELOW) and f"{path}/".startswith(known[:-3]))
            for known in self.packages
        )


class _Frameworks:
    """The frameworks of data/handlers.toml, indexed by their functions."""

    def __init__(self, frameworks: Iterable[Framework]) -> None:
        self.all: Final = tuple(frameworks)
        self._by_name: dict[str, Framework] = {}
        self._patterns: list[tuple[re.Pattern[str], Framework]] = []
        for framework in self.all:
            for call in framework.calls:
                if call.startswith("/"):
                    self._patterns.append((re.compile(call[1:-1]), framework))
                else:
                    self._by_name[call] = framework
        self.goroutines: Final = frozenset(
            function for framework in self.all for function in framework.goroutines
        )
        self._known: dict[str, Framework | None] = {}

    def calling(self, function: str) -> Framework | None:
        """The framework whose function, a plain name, calls handlers; None for any other."""
        if function not in self._known:
            if len(self._known) >= _MAX_CACHED:
                self._known.clear()
            self._known[function] = self._find(owner(function))
        return self._known[function]

    def _find(self, name: str) -> Framework | None:
        by_name = self._by_name.get(name)
        if by_name:
            return by_name
        matching = (one for pattern, one in self._patterns if pattern.fullmatch(name))
        return next(matching, None)


def frameworks() -> tuple[Framework, ...]:
    """All frameworks of which handlers are known."""
    return _frameworks().all


def is_request(stack: Sequence[str]) -> bool:
    """Whether a client waits for what stands above its handler; `stack` has plain names."""
    calling = _frameworks().calling
    return any(
        _is_in_method(name) or ((one := calling(name)) is not None and not one.polls)
        for name in stack
    )


def is_in_request(frames: Iterable[Frame]) -> bool:
    """Whether a stack has a request handler."""
    return is_request(plain_names(frames))


def is_of_request(sample: Sample) -> bool:
    """Whether its goroutines serve a request: one of their functions is a request handler.

    Of goroutines that run the stack is not known, only the function that they were started with.
    """
    frames = sample.frames
    if is_in_request(frames):
        return True
    if len(frames) < 2 or not frames[0].function.startswith("["):
        return False
    return plain(frames[-1].function) in _frameworks().goroutines


def handler_in(frames: Sequence[Frame]) -> Handler | None:
    """The handler on a stack, innermost frame first; None if no framework calls one there."""
    calling: Framework | None = None
    called: Frame | None = None
    generated = ""
    for at in range(len(frames) - 1, -1, -1):
        frame = frames[at]
        name = plain(frame.function)
        if name is None:
            continue
        if one := _frameworks().calling(name):
            if one is not calling or _METHOD_OF_GRPC.search(name):
                generated = name
            calling, called = one, None
        elif _is_method(name):
            calling, called = calling or _frameworks().all[0], _method(frames, at)
            generated = ""
        elif calling and called is None and not name.startswith(_REFLECTION):
            called = _method(frames, at)
    if calling is None:
        return None
    name = (plain(called.function) if called else None) or ""
    if called is None or _is_of_library(name) or calling.has(name):
        return Handler(f"[{calling.name}]", "")
    return Handler(_name(called), called.function, _method_of_grpc(generated, name))


class HandlerLabels:
    """Labels profiles of one program, time after time: it remembers which handlers there are."""

    def __init__(self, most: int = _MOST_HANDLERS) -> None:
        """With names for `most` handlers, the first and largest ones; the others have one name."""
        self._most: Final = most
        self._known: dict[str, Handler] = {}
        self._lock: Final = threading.Lock()

    def labelled(
        self, profiles: Sequence[Profile], routes: Mapping[str, str] | None = None
    ) -> list[Profile]:
        """The profiles with the label HANDLER on each sample that has a handler.

        Goroutines that a handler has started are found if some sample has shown the handler, now
        or before. A program's own label of that name stays as it is. The name of a handler ends
        with its route, if `routes` has one for its function. Any thread may call it.
        """
        with self._lock:
            samples = chain.from_iterable(profile.samples for profile in profiles)
            for sample in sorted(samples, key=lambda one: -one.values[-1]):
                handler = _handler_of(sample)
                if handler and handler.function:
                    self._learn(handler)
            names = _Names(dict(self._known), routes or {})
        return [
            replace(profile, samples=tuple(map(names.labelled, profile.samples)))
            for profile in profiles
        ]

    def _learn(self, handler: Handler) -> None:
        """Know a handler; one that several methods of gRPC call has no method in its name."""
        function = handler.function
        known = self._known.get(function)
        if known is None and len(self._known) < _MOST_HANDLERS:
            has_room = len(self._known) < self._most
            self._known[function] = handler if has_room else Handler(OTHER_HANDLERS, function)
        elif known is not None and known.method != handler.method:
            self._known[function] = known._replace(method="")

    def names(self, routes: Mapping[str, str]) -> dict[str, str]:
        """The names in labels of the handlers that were seen, by function."""
        with self._lock:
            names = _Names(dict(self._known), routes)
        return {function: names.of(handler) for function, handler in names.known.items()}


def with_handlers(
    profiles: Sequence[Profile], routes: Mapping[str, str] | None = None
) -> list[Profile]:
    """The same of profiles that are all that there is of a program."""
    return HandlerLabels().labelled(profiles, routes)


def of_handler(profile: Profile, text: str) -> Profile:
    """What handlers did whose names contain `text`: of samples with the label HANDLER."""
    labelled = ((sample, handler_label(sample)) for sample in profile.samples)
    kept = tuple(sample for sample, label in labelled if label and text in label)
    return replace(profile, samples=kept)


def handler_names(profile: Profile) -> list[str]:
    """The names of all handlers in the labels of a profile, sorted."""
    return sorted({label for label in map(handler_label, profile.samples) if label})


def handler_label(sample: Sample) -> str | None:
    """The name of a sample's handler, as its label has it; None without the label."""
    return next((str(label.value) for label in sample.labels if label.key == HANDLER), None)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of handlers: those that have names of their own, and routes, both by function."""

    known: Mapping[str, Handler]
    routes: Mapping[str, str]

    def labelled(self, sample: Sample) -> Sample:
        """The sample with the label of its handler, if it has one."""
        if handler_label(sample) is not None:
            return sample
        handler = _handler_of(sample) or _starter_of(waiter_of(sample), self.known)
        if handler is None:
            return sample
        if handler.function:
            handler = self.known.get(handler.function, Handler(OTHER_HANDLERS, ""))
        # In front: labels of locks stand behind all others (profile.lock_labels).
        return replace(sample, labels=(Label(HANDLER, self.of(handler)), *sample.labels))

    def of(self, handler: Handler) -> str:
        """The name in the label of a handler."""
        if handler.name == OTHER_HANDLERS:
            return handler.name
        route = self.routes.get(handler.function, handler.method)
        return f"{handler.name}: {route}" if route else handler.name


def _handler_of(sample: Sample) -> Handler | None:
    return handler_in(waiter_of(sample).frames)


def _starter_of(sample: Sample, known: Mapping[str, Handler]) -> Handler | None:
    """The handler, one of `known`, in which its goroutine was started, or which was cut off."""
    is_cut = len(sample.locations) >= _CUT_DEPTH
    for frame in reversed(sample.frames):
        if is_cut and frame.function in known:
            return known[frame.function]
        for outer in _enclosing(frame.function):
            if outer in known:
                return known[outer]
    return None


def _method(frames: Sequence[Frame], at: int) -> Frame:
    """The frame at an index; of the wrapper of a method with a value receiver that of the method.

    The compiler makes main.(*T).M, which calls main.T.M.
    """
    name = _POINTER.sub(r"\1", frames[at].function, count=1)
    return frames[at - 1] if at and frames[at - 1].function == name else frames[at]


def _enclosing(function: str) -> Iterator[str]:
    """The functions around a closure, or around the go statement that a wrapper stands for."""
    while inner := _INNER.search(function):
        function = function[: inner.start()]
        yield function


def _name(frame: Frame) -> str:
    """As an engineer says it; a closure, which has no name, with its place."""
    name = _ARGUMENTS.sub("[...]", frame.function.replace("%2e", "."))
    if CLOSURE.search(name) and frame.start_line:
        return f"{name} ({frame.file.rpartition('/')[2]}:{frame.start_line})"
    return name


def _method_of_grpc(generated: str, called: str) -> str:
    """The service and the method of the function that the generator made, without the package.

    Names of methods with underscores are known by the function that is called.
    """
    found = _METHOD_OF_GRPC.search(generated)
    if not found:
        return ""
    service, method = found["service"], found["method"]
    name = called.rpartition(".")[2]
    whole = f"{service}_{method}"
    if "_" in name and whole.endswith(f"_{name}"):
        service, method = whole.removesuffix(f"_{name}"), name
    return f"{service}/{method}"


def _is_of_library(name: str) -> bool:
    """Whether it is a function of Go's library that handles nothing: not its file server."""
    return is_in_library(name) and not package(name).startswith(("net/http", "expvar"))


def _is_method(name: str) -> bool:
    return name.endswith(_METHOD)


@lru_cache(_MAX_CACHED)
def _is_in_method(name: str) -> bool:
    """Whether it is a handler's method, or a closure in one."""
    return _is_method(owner(name).removesuffix(".func"))


@cache
def _frameworks() -> _Frameworks:
    text = files("ebpfprof").joinpath(_DATA).read_text(encoding="utf-8")
    return _Frameworks(map(_framework, tomllib.loads(text)["framework"]))


def _framework(data: Mapping[str, Any]) -> Framework:
    lists = ("calls", "packages", "goroutines")
    return Framework(
        name=data["name"],
        polls=data.get("polls", False),
        **{key: tuple(data.get(key, ())) for key in lists},
    )
