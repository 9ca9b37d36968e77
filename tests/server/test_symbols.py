"""Names by address: each address is looked up once, however often it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.profile.model import Location, Sample
from ebpfprof.profilers.waits.kinds import BLOCK
from ebpfprof.server import pprof_endpoints, symbol_endpoint
from ebpfprof.server.symbols import symbols_of
from symbolizer import ElfFile, Frame, Function, GoBinary
from tests.continuous.fakes import PID, FakeTarget
from tests.kernel.programs import program
from tests.server.fakes import Answer, Service
from tests.targets_run import Target
from tests.unit.export.small_profile import MAIN

MIB = 1 << 20
FRAMES_MANY, FUNCTION_AT = GoBinary.frames_many, GoBinary.function_at


@pytest.fixture(scope="module")
def ticker() -> Iterator[Target]:
    with Target.start(program("ticker")) as target:
        yield target


@pytest.fixture(scope="module")
def entries() -> list[int]:
    with ElfFile.open(program("ticker")) as elf:
        return [function.entry for function in GoBinary.open(elf).functions()]


def body(words: Iterable[str]) -> bytes:
    """As many of these words as fit into a request, again and again from the first."""
    text = "+".join(words).encode() + b"+"
    return (text * (MIB // len(text) + 1))[:MIB].rpartition(b"+")[0]


def test_repeated_addresses_are_looked_up_once(
    ticker: Target, entries: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(binary: GoBinary, pcs: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
        wanted = list(pcs)
        asked.append(len(wanted))
        return FRAMES_MANY(binary, wanted)

    monkeypatch.setattr(GoBinary, "frames_many", counted)
    words = body([*map(hex, entries), "1", "junk", ""])
    lines = symbol_endpoint._symbol_table(OpenProcesses(), ticker.pid, words).decode().splitlines()

    assert asked == [len({*entries, 1})]
    assert len(lines) == 1 + sum(word.startswith(b"0x") for word in words.split(b"+"))
    assert lines[1].startswith(f"{entries[0]:#x} ")
    assert lines[1] == lines[1 + len(entries)]


def test_a_text_looks_each_address_up_once(
    ticker: Target, entries: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(binary: GoBinary, pc: int) -> Function | None:
        asked.append(pc)
        return FUNCTION_AT(binary, pc)

    monkeypatch.setattr(GoBinary, "function_at", counted)
    stack = tuple(Location(entry + 1, None, ()) for entry in entries[:8])
    samples = [Sample(stack[at:], (1, at)) for at in range(8)]
    profile = BLOCK.make_profile(samples, [MAIN], time_ns=1, duration_ns=1)
    assert pprof_endpoints._text_of(OpenProcesses(), ticker.pid, profile, ()).count("\n#") == sum(
        range(1, 9)
    )
    assert sorted(asked) == [entry + 1 for entry in entries[:8]]


def test_the_answer_has_a_bound(ticker: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names may be long, and each may be asked for a hundred thousand times."""
    monkeypatch.setattr(symbol_endpoint, "MAX_NAMES_BYTES", 1000)
    status, output = asked_of(replace(FakeTarget(PID), pid=ticker.pid), b"0x401000+" * 10_000)
    assert status == 413
    assert output == b"The names of these addresses take more than 1000 bytes: ask for fewer.\n"


def test_a_body_that_never_arrives_times_out(
    ticker: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(symbol_endpoint, "BODY_S", 0.05)
    status, output = asked_of(replace(FakeTarget(PID), pid=ticker.pid), None)
    assert status == 408
    assert output == b"The addresses did not come within 0.05 s.\n"


def asked_of(target: FakeTarget, sent: bytes | None) -> tuple[int, bytes]:
    """The answer to addresses that are sent, or never arrive."""

    async def work() -> Answer:
        service = await Service.of(target)
        path = "/debug/pprof/symbol"
        return await service.client.ask(path, method="POST", body=sent)

    answer = asyncio.run(asyncio.wait_for(work(), 60))
    return answer.status, answer.body


@pytest.mark.parametrize(("minor", "lists"), [("1.19", 0), ("1.21", 1), ("1.27", 2)])
def test_type_arguments_are_as_this_version_of_go_writes_them(minor: str, lists: int) -> None:
    path = program("heaplocks", minor)
    with ElfFile.open(path) as elf:
        generic = [
            function
            for function in GoBinary.open(elf).functions()
            if function.name.startswith("main.(*box[") and function.name.endswith("]).put")
        ]
    assert generic
    with Target.start(path) as target, symbols_of(OpenProcesses(), target.pid) as symbols:
        assert symbols.type_argument_lists == lists
        found = symbols.names([each.entry for each in generic])
    assert set(found.values()) == {"main.(*box[...]).put"}
