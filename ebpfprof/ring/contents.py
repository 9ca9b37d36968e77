"""A file of the ring: a pprof file whose gzip header also says of whom and of what time it is.

Any reader of gzip skips that part of the header (RFC 1952, FEXTRA). So each file stands for itself:
the index can be rebuilt from the files, and a file that was copied elsewhere stays complete.
The part has up to three subfields: facts as JSON, deflated; and of estimates the standard errors of
the amounts and of the counts of its samples, in their order, as parts of these values, in half
precision.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ebpfprof.errors import InvalidProfile
from ebpfprof.export import pprof
from ebpfprof.export.pprof.writer import in_order
from ebpfprof.profile.delta import totals
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profile.service import ServiceIdentity
from ebpfprof.profilers.registry import find_kind
from ebpfprof.ring.account import AccountFacts, facts_of, is_estimate, with_account
from ebpfprof.ring.typed import from_plain, to_plain

FORMAT = 2
"""The version that is written."""
_READ = (1, FORMAT)
"""Those that are read. Format 1 has no errors of counts: they are taken to be as large, in
proportion, as those of amounts, which are larger as a rule."""

MAX_HEADER = 12 + 0xFFFF
"""That many bytes of a file hold all that facts() needs."""

_FIXED = 10  # bytes of a gzip header without optional parts
_FLAGS, _HAS_EXTRA = 3, 4
_MAGIC = b"\x1f\x8b\x08"
_FACTS, _ERRORS, _COUNT_ERRORS = b"Eb", b"Ee", b"Ec"
_MAX_FACTS = 32 << 10  # in the file
_MAX_UNPACKED = 1 << 20
_LARGEST = 65504.0  # of half precision
_INT64_MAX = (1 << 63) - 1
_MAX_PID = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class RingProcess:
    """A process that was recorded. `start_ns` is CLOCK_BOOTTIME of the `boot`, a random id.

    `began_ns` is the same in Unix time, 0 if it is not known.
    """

    identity: ServiceIdentity
    pid: int
    start_ns: int
    boot: str
    began_ns: int
    command: str
    go_version: str

    @property
    def key(self) -> tuple[str, int, int]:
        """What distinguishes it from all other processes."""
        return self.boot, self.pid, self.start_ns


@dataclass(frozen=True, slots=True)
class RingFacts:
    """What a file says of itself. Times are Unix time; `totals` are the sums of each value.

    It `is_estimate` if they are scaled.
    """

    kind: str
    start_ns: int
    end_ns: int
    process: RingProcess
    totals: tuple[int, ...]
    is_estimate: bool = False
    module: str = ""
    account: AccountFacts | None = None
    format: int = FORMAT


def packed(profile: Profile, process: RingProcess, start_ns: int, end_ns: int) -> bytes:
    """The file of a profile of that time (Unix). Raises InvalidProfile.

    An account that is too long for the header is left out; the profile has its comments.
    """
    about = RingFacts(
        profile.kind,
        start_ns,
        end_ns,
        process,
        tuple(totals(profile)),
        is_estimate(profile),
        profile.module,
        facts_of(profile),
    )
    _check(about)
    text = _deflated(about)
    if len(text) > _MAX_FACTS:
        text = _deflated(replace(about, account=None))
    if len(text) > _MAX_FACTS:
        raise InvalidProfile("The name and labels of the service are too long for a file.")
    extra = _subfield(_FACTS, text)
    for name, errors in _errors(profile).items():
        extra += _subfield(name, struct.pack(f"<{len(errors)}e", *errors))
    # Labels would make a sample of each length, and errors are those of whole stacks.
    data = pprof.encode(replace(profile, has_length_labels=False), keeps_lengths=True)
    header = bytearray(data[:_FIXED])
    header[_FLAGS] |= _HAS_EXTRA
    return b"".join([header, struct.pack("<H", len(extra)), extra, data[_FIXED:]])


def facts(data: bytes) -> RingFacts:
    """What a file says of itself, by its first MAX_HEADER bytes. Raises InvalidProfile."""
    return _facts(dict(_subfields(data)).get(_FACTS, b""))


def unpacked(data: bytes) -> tuple[RingFacts, Profile]:
    """The facts and the profile of a file, with its account and the variances of its samples.

    Raises InvalidProfile.
    """
    sections = dict(_subfields(data))
    about = _facts(sections.get(_FACTS, b""))
    kind = find_kind(about.kind)
    profile = pprof.decode(data, kind=about.kind if kind else "")
    if kind and len(profile.sample_types) != len(kind.sample_types):
        raise InvalidProfile(f"The file holds no {about.kind} profile.")
    profile = replace(profile, module=about.module)
    if kind and (
        errors := {name: sections[name] for name in (_ERRORS, _COUNT_ERRORS) if name in sections}
    ):
        most = _most_errors(len(errors))
        if about.format == 1 and _ERRORS in errors:
            errors[_COUNT_ERRORS] = errors[_ERRORS]
        profile = _with_variances(profile, kind, errors, most)
    if kind and about.account:
        profile = with_account(profile, about.account)
    return about, profile


def _deflated(about: RingFacts) -> bytes:
    text = json.dumps(to_plain(about), separators=(",", ":"))
    return zlib.compress(text.encode(), level=6)


def _facts(text: bytes) -> RingFacts:
    stream = zlib.decompressobj()
    try:
        unpacked = stream.decompress(text, _MAX_UNPACKED)
        plain = json.loads(unpacked)
    except (zlib.error, ValueError, RecursionError) as error:
        raise InvalidProfile("The file does not name its process and time.") from error
    version = plain.get("format") if isinstance(plain, dict) else None
    if isinstance(version, int) and version not in _READ:
        raise InvalidProfile(
            f"The file is of format {version}, this ebpfprof reads {_READ[0]} to {FORMAT}: use the "
            "version that wrote it."
        )
    about: RingFacts = from_plain(RingFacts, plain)
    _check(about)
    return about


def _check(about: RingFacts) -> None:
    """Raise InvalidProfile for numbers that no time or process can have."""
    process = about.process
    if not (
        0 <= about.start_ns <= about.end_ns <= _INT64_MAX
        and 0 < process.pid <= _MAX_PID
        and 0 <= process.start_ns <= _INT64_MAX
        and 0 <= process.began_ns <= _INT64_MAX
        and process.identity.service
    ):
        raise InvalidProfile("A time, a process id or the service's name is out of range.")


def _errors(profile: Profile) -> dict[bytes, list[float]]:
    """The relative errors of the samples with the largest values, by subfield."""
    kind = find_kind(profile.kind)
    if kind is None:
        return {}
    samples = list(in_order(profile.samples))
    variances = {
        _ERRORS: [(sample.values[kind.shown[1]], sample.variance) for sample in samples],
        _COUNT_ERRORS: [(sample.values[0], sample.count_variance) for sample in samples],
    }
    known = {name: pairs for name, pairs in variances.items() if any(v for _, v in pairs)}
    return {
        name: [_relative(*pairs) for pairs in of_samples[: _most_errors(len(known))]]
        for name, of_samples in known.items()
    }


def _most_errors(subfields: int) -> int:
    """How many errors fit into each of one or two subfields."""
    return (0xFFFF - _MAX_FACTS - 4 - 4 * subfields) // 2 // subfields


def _relative(value: int, variance: float) -> float:
    return min(math.sqrt(variance) / abs(value), _LARGEST) if value else 0.0


def _with_variances(
    profile: Profile, kind: ProfileKind, errors: Mapping[bytes, bytes], most: int
) -> Profile:
    """The profile with variances from errors; without, if they are not of its samples.

    There are errors of `most` samples at most.
    """
    samples = list(profile.samples)
    for name, data in errors.items():
        if len(data) % 2:
            raise InvalidProfile("The file's standard errors are cut off.")
        of_samples: Sequence[float] = struct.unpack(f"<{len(data) // 2}e", data)
        if len(of_samples) != min(len(profile.samples), most):
            return profile
        for number, error in enumerate(of_samples):
            if 0 < error <= _LARGEST:
                samples[number] = _with_error(samples[number], name, error, kind.shown[1])
    return replace(profile, samples=tuple(samples))


def _with_error(sample: Sample, name: bytes, error: float, amount: int) -> Sample:
    """The sample with this relative error of a value; `amount` is the index of the amount."""
    if name == _COUNT_ERRORS:
        return replace(sample, count_variance=(error * sample.values[0]) ** 2)
    return replace(sample, variance=(error * sample.values[amount]) ** 2)


def _subfield(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<H", len(data)) + data


def _subfields(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The names and contents of the subfields of a gzip header. Raises InvalidProfile."""
    if len(data) < _FIXED + 2 or not data.startswith(_MAGIC):
        raise InvalidProfile("The file is empty, cut off, or not gzip.")
    if not data[_FLAGS] & _HAS_EXTRA:
        raise InvalidProfile("The file does not name its process and time.")
    at = _FIXED + 2
    end = at + int.from_bytes(data[_FIXED:at], "little")
    while at < end:
        length = int.from_bytes(data[at + 2 : at + 4], "little")
        content = data[at + 4 : min(at + 4 + length, end)]
        if len(content) < length or at + 4 > end:
            raise InvalidProfile("The file's header is cut off.")
        yield data[at : at + 2], content
        at += 4 + length
