"""The list of the runtime's threads, found in the code that adds to it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from symbolizer.codeanalysis.operands import is_variable, operands
from symbolizer.errors import GoTableError

if TYPE_CHECKING:
    from symbolizer.go.binary import GoBinary

_INIT: Final = "runtime.mcommoninit"
_WORD_BYTES: Final = 8


def allm_address(binary: GoBinary) -> int:
    """Return the linked address of runtime.allm, a pointer to the first runtime.m.

    runtime.mcommoninit (runtime/proc.go, Go 1.19 to 1.27) loads it, and stores the new thread
    there right afterwards: so its address follows. Raises GoTableError if the code differs.
    """
    for function in binary.functions_named(_INIT):
        used = [o for o in operands(binary.elf, function) if o.is_address or o.size == _WORD_BYTES]
        addresses = {
            load.address
            for load, store in pairwise(used)
            if load.loads and store.is_address and store.address == load.address
        }
        if len(addresses) == 1 and is_variable(binary.elf, min(addresses), _WORD_BYTES):
            return min(addresses)
    raise GoTableError(
        f"{_INIT} does not add to the list of threads as in known versions of Go: this program was "
        "compiled in an unknown way"
    )
