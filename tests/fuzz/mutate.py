"""Changes that may break parsers: each input is a function of its parser and a number."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

MAX_BYTES: Final = 1 << 16
"""No input grows beyond this, or beyond twice its seed."""

_NUMBERS: Final = tuple(
    sorted(
        {0, 1, 2, 3, 7, 8, 15, 16, 17, 24, 31, 63, 100, 1000, 4096}
        | {
            base + off
            for bits in (7, 8, 15, 16, 31, 32, 63)
            for base in [1 << bits]
            for off in (-1, 0)
        }
        | {(1 << 64) - 1, (1 << 64) - 8, (1 << 62), (1 << 40), (1 << 47) - 1, 1 << 30, 1 << 20}
    )
)
_TEXTS: Final = (
    *(b"\x1b[31m", b"\x9b31m", b"\x1b]0;x\x07", "\u202e".encode(), "\u2028".encode(), b"\xff\xfe"),
    *(b"\n", b"\r", b"\t", b"\0", b";", b":", b" ", b"/", b"%s", b"\\", b'"', b"</script>", b"<b>"),
    *(b"-1", b"0", b"18446744073709551616", b"1e9", b"..", b" (deleted)", b"\xed\xa0\x80"),
    *(b"\xff" * 10 + b"\x01", b"\x80" * 9, b"\xf4\x90\x80\x80", "\ufdfa".encode() * 3, b"\x7f"),
)


def mutated(rng: random.Random, seeds: Sequence[bytes], frozen: Callable[[bytes], int]) -> bytes:
    """A seed with one to eight changes; its first `frozen(seed)` bytes stay as they are."""
    seed = seeds[rng.randrange(len(seeds))]
    start = frozen(seed)
    data = bytearray(seed)
    limit = max(MAX_BYTES, 2 * len(seed))
    for _ in range(_count(rng)):
        _change(rng, data, start, seeds)
        del data[limit:]
    return bytes(data)


def _count(rng: random.Random) -> int:
    count = 1
    while count < 8 and rng.random() < 0.5:
        count += 1
    return count


def _change(rng: random.Random, data: bytearray, start: int, seeds: Sequence[bytes]) -> None:
    size = len(data) - start
    kind = rng.randrange(20) if size > 0 else 15
    at = start + (rng.randrange(size) if size > 0 else 0)
    if kind < 4:
        data[at] ^= 1 << rng.randrange(8)
    elif kind < 7:
        data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif kind < 11:
        # As tables hold them: little-endian words, most often aligned.
        width = rng.choice((1, 2, 4, 4, 8, 8))
        if rng.random() < 0.8:
            at -= at % width
        data[at : at + width] = (rng.choice(_NUMBERS) % (1 << 8 * width)).to_bytes(width, "little")
    elif kind == 11:
        # Add a little to a word, or subtract it.
        width = rng.choice((1, 2, 4, 8))
        value = int.from_bytes(data[at : at + width], "little") + rng.randint(-16, 16)
        data[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    elif kind == 12:
        # Copy a piece over another one.
        length = min(rng.randrange(1, 65), size)
        other = start + rng.randrange(size)
        piece = data[other : other + length]
        data[at : at + len(piece)] = piece
    elif kind == 13:
        del data[at : at + rng.choice((1, 1, 2, 4, 8, rng.randrange(1, 65)))]
    elif kind == 14:
        del data[at:]
    elif kind == 15:
        data[at:at] = rng.choice(_TEXTS)
    elif kind == 16:
        text = rng.choice(_TEXTS)
        data[at : at + len(text)] = text
    elif kind == 17:
        data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8, 16)))
    elif kind == 18:
        length = min(rng.randrange(1, 65), size)
        data[at:at] = data[at : at + length] * rng.choice((1, 1, 2, 8))
    else:
        # The end of another seed.
        other_seed = seeds[rng.randrange(len(seeds))]
        if other_seed:
            data[at:] = other_seed[rng.randrange(len(other_seed)) :]


def minimised(data: bytes, fails: Callable[[bytes], bool], tries: int = 400) -> bytes:
    """A smaller input that still fails: remove pieces as long as it does."""
    piece = max(len(data) // 2, 1)
    while piece and tries > 0:
        at = 0
        while at < len(data) and tries > 0:
            tries -= 1
            shorter = data[:at] + data[at + piece :]
            if fails(shorter):
                data = shorter
            else:
                at += piece
        piece //= 2
    return data
