"""What goroutines of a chain did, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.timeline.parts import Did
from ebpfprof.timeline.peers import end_of
from ebpfprof.timeline.waitgraph import SLEEP

if TYPE_CHECKING:
    from ebpfprof.timeline.links import Link
    from ebpfprof.timeline.model import WaitObject
    from ebpfprof.timeline.waitgraph import Cause, OutsideCause

OWN_CPU: Final = "own CPU"
NETWORK: Final = "network"
_DID: Final = {
    Did.RUN: "ran",
    Did.ASSIST: "GC assist",
    Did.NO_PROCESSOR: "ran, thread without a processor",
    Did.QUEUE: "run queue",
    Did.STOPPED: "world stopped",
    Did.CALL: "system call",
    Did.FOR_NETWORK: NETWORK,
    Did.FOR_TIMER: "timer",
    Did.FOR_COLLECTOR: "garbage collector",
    Did.FOR_GOROUTINE: "in a chain of waits too long to follow",
    Did.GOES_ON: "still waits",
    Did.NOT_KNOWN: "not known who ended the wait",
    Did.NOT_CREATED: "not created yet",
}
_UNKNOWN: Final = (Did.FOR_GOROUTINE, Did.GOES_ON, Did.NOT_KNOWN)
_IN_SENTENCES: Final = {
    **_DID,
    Did.ASSIST: "marked for the garbage collector",
    Did.NO_PROCESSOR: "had a thread without a processor",
    Did.QUEUE: "was in the run queue",
    Did.STOPPED: "was stopped with the world",
    Did.CALL: "was in the system call",
    Did.FOR_NETWORK: "waited for the network",
    Did.FOR_TIMER: "waited for a timer",
    Did.FOR_COLLECTOR: "waited for the garbage collector",
    Did.FOR_GOROUTINE: "waited in a chain too long to follow",
    Did.NOT_KNOWN: "waited; what ended the wait is not known",
    Did.NOT_CREATED: "was not created yet",
}


def cell(link: Link, *, is_own: bool = False) -> str:
    """What a link says, for a table; `is_own`: of the goroutine that is asked about."""
    text = _cell(link, is_own=is_own)
    return f"{text} in {link.where}" if link.where else text


def _cell(link: Link, *, is_own: bool) -> str:
    match link.did:
        case Did.RUN if is_own:
            return OWN_CPU
        case Did.CALL if link.word.startswith("syscall "):
            return f"system call {link.word.removeprefix('syscall ')}"
        case Did.FOR_GOROUTINE:
            return waited_for(link)
        case Did.FOR_NETWORK:
            return _with(_network(_peer(link.on)), _peer(link.on))
        case Did.FOR_TIMER if link.word == SLEEP:
            return link.word
        case Did.FOR_TIMER | Did.FOR_COLLECTOR | Did.GOES_ON | Did.NOT_KNOWN:
            waits = waited_for(link)
            return f"{waits}: {_DID[link.did]}" if waits else _DID[link.did]
    return _DID[link.did]


def cause(of: Cause) -> str:
    """What was waited for in the end, without whose it is."""
    if of.did is Did.CALL:
        return f"system call {of.detail.removeprefix('syscall').strip()}".rstrip()
    if of.detail == SLEEP:
        return of.detail
    if of.did in _UNKNOWN:
        return f"{of.detail}: {_DID[of.did]}"
    if of.did is Did.FOR_NETWORK:
        return _with(_network(of.detail), of.detail)
    return f"{_DID[of.did]} {of.detail}".rstrip()


def outside(of: OutsideCause) -> str:
    """What is waited for that is no goroutine."""
    match of.did:
        case Did.FOR_NETWORK:
            return of.name or "the network"
        case Did.FOR_TIMER:
            return "the end of a sleep" if of.name == SLEEP else "a timer"
        case Did.FOR_COLLECTOR:
            return "the garbage collector"
        case Did.GOES_ON:
            return f"an event that had not come by the end: {of.name}"
        case Did.FOR_GOROUTINE:
            return f"one {_DID[of.did]}: {of.name}"
    return f"not known: {of.name}"


def clause(did: Did, word: str, name: str) -> str:
    """What somebody did, as the end of a sentence: "waited for the network (10.0.0.2:4242)"."""
    if did is Did.FOR_TIMER and word == SLEEP:
        return "slept"
    if did is Did.CALL:
        return f"{_IN_SENTENCES[did]} {word.removeprefix('syscall').strip()}".rstrip()
    more = name or (word if did in _UNKNOWN else "")
    if did is Did.FOR_NETWORK and _network(name) != NETWORK:
        return f"waited for {name}"
    return f"{_IN_SENTENCES[did]} ({more})" if more else _IN_SENTENCES[did]


def chain_sentence(chain: tuple[Link, ...]) -> str:
    """What a chain says: "it waited for L, held by S, which waited for the network"."""
    first, *others = chain
    if not others:
        text = "ran" if first.did is Did.RUN else clause(first.did, first.word, _peer(first.on))
        return f"it {text}{f' in {first.where}' if first.where else ''}"
    text, before = f"it {_waited(first)}", first
    for number, link in enumerate(others):
        by = f", {holder(before)} {link.who.name}"
        is_last = number == len(others) - 1
        did = clause(link.did, link.word, _peer(link.on)) if is_last else _waited(link)
        text, before = f"{text}{by}, which {did}", link
    return text


def _waited(link: Link) -> str:
    if link.did is Did.NOT_CREATED:
        return _IN_SENTENCES[link.did]
    if link.is_lock:
        return f"waited for {_name(link.on) or 'a lock'} ({link.word})"
    return f"waited ({waited_for(link)})"


def holder(link: Link) -> str:
    """What the one is that ends a wait: "held by" for a lock, "for" else."""
    return "held by" if link.is_lock else "for"


def waited_for(link: Link) -> str:
    """What a wait is, and the name of a lock or the address of a peer."""
    return _with(link.word, _name(link.on))


def _with(*words: str) -> str:
    return " ".join(filter(None, words))


def _name(on: WaitObject | None) -> str:
    return _peer(on) if on and on.file else on.name if on else ""


def _peer(on: WaitObject | None) -> str:
    """The other end of a socket or pipe; "" if that is not known."""
    return end_of(on.file) if on and on.file else ""


def _network(name: str) -> str:
    """What is waited for: a pipe is not the network."""
    return NETWORK if not name or ":" in name else "IO"
