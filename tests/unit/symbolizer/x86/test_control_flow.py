"""Instructions on every path through a function, found in one walk, however large it is."""

from __future__ import annotations

import random
import struct
from collections.abc import Collection
from typing import Any

import pytest

from symbolizer import ElfFile, GoBinary, GoTableError
from symbolizer.codeanalysis import semaphores
from symbolizer.codeanalysis.park_sites import probe_sites
from symbolizer.x86.disasm import on_every_path, reachable
from tests.unit.symbolizer.go_programs import binary, only, program

MAX_WALKS = 100


def by_definition(flow: dict[int, tuple[int, ...]], start: int, to: int) -> set[int]:
    """Without it, no path is left."""
    if to not in reachable(flow, [start]):
        return set()
    return {each for each in flow if to not in reachable(flow, [start], without=each)}


@pytest.mark.parametrize("seed", range(300))
def test_on_every_path_matches_its_definition(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(1, 14)
    flow = {
        each: tuple({rng.randrange(count) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))})
        for each in range(count)
    }
    start, to = rng.randrange(count), rng.randrange(count)
    assert on_every_path(flow, start, to) == by_definition(flow, start, to)


def test_a_large_function_called_semacquire1_is_walked_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hostile program names its largest function semacquire1, and lets it park.

    It took minutes when each instruction was left out in turn.
    """
    changed = with_large_semacquire()
    walks = []

    def counted(flow: Any, start: Collection[int], **without: int) -> set[int]:  # noqa: ANN401 - passed on
        walks.append(without)
        assert len(walks) < MAX_WALKS
        return reachable(flow, start, **without)

    monkeypatch.setattr(semaphores, "reachable", counted)
    with pytest.raises(GoTableError, match="semacquire1"):
        probe_sites(changed)
    assert walks, "it was looked at"


def with_large_semacquire() -> GoBinary:
    found = binary()
    park = only(found, "runtime.gopark")
    acquire = only(found, "runtime.semacquire1")
    parts = found._table
    records = found.elf.vaddr_to_offset(parts.header.vaddr) + parts.header.pcln_offset
    name = found.layout.offset("_func", "nameOff")
    data = bytearray(program())

    def name_at(index: int) -> int:
        return records + int(parts.offsets[index]) + name

    sizes = {f.end - f.entry: f for f in found.functions() if f.end - f.entry < 1 << 16}
    large = sizes[max(sizes)]
    own, other = (data[name_at(f.index) : name_at(f.index) + 4] for f in (acquire, large))
    data[name_at(large.index) : name_at(large.index) + 4] = own
    data[name_at(acquire.index) : name_at(acquire.index) + 4] = other
    # Two paths of instructions that probes could be on, with none on both paths; and a loop that
    # parks.
    size = large.end - large.entry
    half = (size - 32) // 2
    branch = struct.pack("<BBi", 0x0F, 0x84, half + 5)
    first = b"\x90" * half + struct.pack("<Bi", 0xE9, half)
    call = large.entry + len(branch) + len(first) + half
    loop = struct.pack("<Bi", 0xE8, park.entry - call - 5) + b"\xeb\xf9"
    code = branch + first + b"\x90" * half + loop
    at = found.elf.vaddr_to_offset(large.entry)
    data[at : at + size] = code.ljust(size, b"\xcc")
    return GoBinary.open(ElfFile.from_bytes(bytes(data)))
