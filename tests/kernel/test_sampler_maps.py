"""The maps and ring buffers beside samplers: rows go in, records come out."""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_native_id

import numpy as np
import pytest

from ebpfprof.errors import KernelUnsupported
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.profilers.cpu.samplers import Samplers
from tests.kernel.samplerprogram import (
    HZ,
    ROWS,
    counting_program,
    mine,
    online_now,
    only_on,
    work_until,
)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[BpfProgram]:
    with counting_program(monkeypatch) as loaded:
        yield loaded


def test_rows_are_added_to_a_hash_map_until_the_map_is_full(program: BpfProgram) -> None:
    key_type, value_type = program.maps["rows"].types
    keys, values = np.zeros(2 * ROWS, key_type), np.zeros(2 * ROWS, value_type)
    keys["thread"] = range(2 * ROWS)
    keys["cpu"] = 7
    values["number"] = np.arange(2 * ROWS) * 1000 + (1 << 40)
    values["halves"][:, 1] = range(2 * ROWS)

    assert program.maps["rows"].update(keys[:0], values[:0]) == 0
    assert rows_of(program) == {}
    assert program.maps["rows"].update(keys[:10:2], values[:10:2]) == 5
    assert rows_of(program) == {n: (1000 * n + (1 << 40), 0, n) for n in range(0, 10, 2)}
    values["halves"][:, 0] = 3
    assert program.maps["rows"].update(keys[:10], values[:10]) == 10
    assert rows_of(program) == {n: (1000 * n + (1 << 40), 3, n) for n in range(10)}
    assert program.maps["rows"].update(keys, values) == ROWS
    assert rows_of(program) == {n: (1000 * n + (1 << 40), 3, n) for n in range(ROWS)}


def rows_of(program: BpfProgram) -> dict[int, tuple[int, ...]]:
    keys, values = program.maps["rows"].rows()
    assert set(keys["cpu"]) <= {7}
    return {
        int(key): (int(value["number"]), *map(int, value["halves"]))
        for key, value in zip(keys["thread"], values, strict=True)
    }


def test_rows_of_another_type_are_refused(program: BpfProgram) -> None:
    key_type, value_type = program.maps["rows"].types
    with pytest.raises(ValueError, match="no rows of the map rows"):
        program.maps["rows"].update(np.zeros(3, np.uint64), np.zeros(3, value_type))
    with pytest.raises(ValueError, match="no rows of the map rows"):
        program.maps["rows"].update(np.zeros(3, key_type), np.zeros(3, key_type))
    with pytest.raises(ValueError, match="no rows of the map rows"):
        program.maps["rows"].update(np.zeros(3, key_type), np.zeros(2, value_type))
    assert rows_of(program) == {}


def test_a_map_without_batched_updates_is_an_error(program: BpfProgram) -> None:
    """A map that has no batched updates, standing for a kernel that has none."""
    key_type, value_type = program.maps["stacks"].types
    with pytest.raises(KernelUnsupported, match="stacks can't be written"):
        program.maps["stacks"].update(np.zeros(3, key_type), np.zeros(3, value_type))


def test_records_of_a_ring_come_once_and_in_order(program: BpfProgram) -> None:
    reader = program.maps["records"].reader()
    assert reader.consume() == []
    *_, cpu = online_now()
    record = np.dtype([("number", "<u8"), ("thread", "<u4"), ("cpu", "<u4")])
    with Samplers(program, "on_sample", HZ) as samplers, only_on(cpu):
        samplers.enable()
        work_until(lambda: mine(program) >= 10)
        read = reader.consume(4)
        assert len(read) == 4
        read += reader.consume(1)
        assert len(read) == 5
        work_until(lambda: mine(program) >= 20)
        samplers.disable()
        read += reader.consume()
    assert reader.consume() == []
    assert {len(each) for each in read} == {record.itemsize}
    rows = np.frombuffer(b"".join(read), record)
    assert list(rows["number"]) == list(range(1, mine(program) + 1))
    assert set(rows["thread"]) == {get_native_id()}
    assert set(rows["cpu"]) == {cpu}


def test_a_map_that_is_not_a_ring_is_refused(program: BpfProgram) -> None:
    with pytest.raises(KernelUnsupported, match="ring buffer can't be read"):
        program.maps["rows"].reader()
