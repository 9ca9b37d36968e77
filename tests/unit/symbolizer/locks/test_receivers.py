"""Methods that lock fields of their receivers: names by code and types, beside DWARF's."""

from __future__ import annotations

import pytest

from symbolizer import ElfFile, GoBinary
from symbolizer.codeanalysis.receiver_locks import ReceiverLocks
from symbolizer.go.type_descriptors import TypeDescriptors
from symbolizer.locks.heap import HeapLockNames, owner_of
from symbolizer.locks.names import Caller, LockNames
from tests.builds import in_full
from tests.kernel.programs import program

pytestmark = pytest.mark.machine

# Of methods of package main and of the library: net/http has many locks.
PACKAGES = ("net/http.", "net.", "crypto/tls.", "os.", "context.", "log.", "internal/poll.")


@pytest.mark.parametrize("minor", [*in_full("1.19", "1.22"), "1.27"])
def test_names_of_the_library_are_those_of_dwarf_or_one_of_them(minor: str) -> None:
    with ElfFile.open(program("httppprof", minor)) as elf:
        binary = GoBinary.open(elf)
        start, end = binary.types
        names = HeapLockNames(TypeDescriptors(elf.read(start, end - start), start))
        dwarf, receivers = LockNames(binary), ReceiverLocks(binary, max_bytes=1 << 24)
        compared, wrong = 0, []
        for function in binary.functions():
            if not function.name.startswith(PACKAGES):
                continue
            caller = Caller(function.name, function.entry)
            for kind in ("sync.Mutex", "sync.RWMutex"):
                for at in receivers.offsets(function.name, function.entry, kind):
                    name = names.of_receiver(owner_of(caller), at, kind)
                    by_dwarf = dwarf.field([caller], kind)
                    if name and by_dwarf:
                        compared += 1
                        base, _, fields = by_dwarf.partition("{")
                        if name not in [base + each for each in fields.rstrip("}").split(",")]:
                            wrong.append((function.name, name, by_dwarf))
    assert wrong == []
    assert compared >= 20
