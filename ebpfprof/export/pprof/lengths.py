"""Lengths of waits in a pprof file of our own, such as those of the ring.

A field that profile.proto does not have, so other readers pass over it: for each sample, in the
order of the file, its histogram. Labels of samples would take many times as much room.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.model import Sample
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram

LENGTHS: Final = 1000
"""The number of the field."""
_BYTES: Final = 2  # the wire type of a field with a length
_MAX_BITS: Final = 63
_HEAD: Final = 2  # numbers before the buckets
_PARTS_OF_WEIGHT: Final = 16
_BUCKETS: Final = SCALE.bucket_of((1 << 64) - 1) + 1
_DAMAGED: Final = "The profile's lengths of waits are damaged."


def lengths_fields(samples: Iterable[Sample]) -> bytes:
    """The fields of these samples, in their order, with rounded counts.

    None if no length is known.
    """
    samples = [*samples]
    if not any(sample.lengths for sample in samples):
        return b""
    tag = _varint(LENGTHS << 3 | _BYTES)
    parts = []
    for sample in samples:
        content = _content(sample.lengths)
        parts += [tag, _varint(len(content)), content]
    return b"".join(parts)


def lengths_in(content: bytes) -> WaitHistogram:
    """The histogram in a field. Raises InvalidProfile."""
    numbers = _numbers(content)
    if not numbers:
        return WaitHistogram()
    if len(numbers) < _HEAD:
        raise InvalidProfile(_DAMAGED)
    apart_ns, weight, *rows = numbers
    counts: dict[int, float] = {}
    bucket = 0
    for step, count in zip(rows[::2], rows[1::2], strict=False):
        bucket += step
        counts[bucket] = count
    if len(rows) % 2 or bucket >= _BUCKETS:
        raise InvalidProfile(_DAMAGED)
    return WaitHistogram.counted(counts, float(apart_ns), weight / _PARTS_OF_WEIGHT)


def _content(lengths: WaitHistogram) -> bytes:
    """The distance of samples, the weight, then each bucket, from the one before, and its count."""
    rows = [(bucket, round(count)) for bucket, count in lengths.rows()]
    numbers = [round(lengths.apart_ns), round(_PARTS_OF_WEIGHT * lengths.weight)]
    before = 0
    for bucket, count in rows:
        if count > 0:
            numbers += [bucket - before, count]
            before = bucket
    return b"".join(map(_varint, numbers)) if len(numbers) > _HEAD else b""


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _numbers(content: bytes) -> list[int]:
    numbers, number, bits = [], 0, 0
    for byte in content:
        number |= (byte & 0x7F) << bits
        bits += 7
        if bits > _MAX_BITS:
            raise InvalidProfile(_DAMAGED)
        if byte < 0x80:
            numbers.append(number)
            number = bits = 0
    if bits:
        raise InvalidProfile(_DAMAGED)
    return numbers
