"""Which waits of a profile are idle by behaviour, and why: in comments, which files keep.

A comment ends in a checksum of the stack that it is about, since places have many stacks.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Literal
from zlib import crc32

from ebpfprof.profile.behaviour import IdleBehaviour
from ebpfprof.profile.idle import rule_of
from ebpfprof.profile.model import Kind, Profile, Sample
from ebpfprof.profile.operations import operation_of, waiting_part

_MOST: Final = 16
_MAX_NAME: Final = 200
_COMMENT: Final = re.compile(
    r"idle: .{1,500}: (?P<number>one|\d{1,9}) goroutines? that waited "
    r"(?P<share>nearly all|\d{1,3}\.\d %) of the time for (?:a )?(?P<cause>timer|signal)s? "
    r"\(stack (?P<stack>[0-9a-f]{8})\)"
)
_CAUSES: Final[dict[str, Literal["timer", "signal"]]] = {"timer": "timer", "signal": "signal"}


def idle_comments(kind: Kind, samples: Iterable[Sample]) -> tuple[str, ...]:
    """A comment for each stack that no rule names and that is idle by behaviour, longest first.

    At most 16: files mark no others.
    """
    delays: dict[str, int] = {}
    by_stack = defaultdict[str, list[Sample]](list)
    samples = list(samples)
    if any(sample.behaviour for sample in samples):
        for sample in samples:
            if waiting_part(sample):
                by_stack[_checksum(sample)].append(sample)
    for stack, those in by_stack.items():
        first = those[0]
        if not first.behaviour or not all(sample.behaviour for sample in those):
            continue
        rule = rule_of(kind, first)
        if rule and rule.name == first.behaviour.name:
            _, line = operation_of(first)
            place = f"{line.function[:_MAX_NAME]} ({line.file.rpartition('/')[2]}:{line.line})"
            text = f"idle: {place}: {first.behaviour} (stack {stack})"
            delays[text] = sum(sample.values[-1] for sample in those)
    longest = sorted(delays, key=lambda text: (-delays[text], text))
    return tuple(longest[:_MOST])


def with_behaviours(profile: Profile) -> Profile:
    """The profile with what its comments say of samples that are idle by behaviour."""
    known = dict(filter(None, map(_read, profile.comments)))
    if not known:
        return profile
    samples = tuple(
        replace(sample, behaviour=known.get(_checksum(sample)) if waiting_part(sample) else None)
        for sample in profile.samples
    )
    return replace(profile, samples=samples)


def _read(comment: str) -> tuple[str, IdleBehaviour] | None:
    match = _COMMENT.fullmatch(comment)
    if match is None:
        return None
    number = 1 if match["number"] == "one" else max(1, int(match["number"]))
    share_text = match["share"]
    share = 1.0 if share_text == "nearly all" else float(share_text.removesuffix(" %")) / 100
    return match["stack"], IdleBehaviour(number, share, _CAUSES[match["cause"]])


def _checksum(sample: Sample) -> str:
    text = "\n".join(f"{frame.function}:{frame.line}" for frame in sample.frames)
    return f"{crc32(text.encode(errors='replace')):08x}"
