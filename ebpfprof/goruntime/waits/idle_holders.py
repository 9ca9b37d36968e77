"""Which goroutines may hold a lock that others wait for: what they do is never idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.goroutines.states import LOCK_WORDS
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget


def lock_holders(go: GoTarget) -> frozenset[int] | None:
    """The ids of goroutines that may hold a lock that others wait for: see lock_holders.py.

    None if that can't be read, or if nothing shows which goroutine holds one of these locks: then
    any may do.
    """
    from ebpfprof.goruntime.waits.dump import dump  # with much else; few recordings need it

    try:
        snapshot = dump(go, apart_s=0)
    except (EbpfprofError, SymbolizerError):
        return None
    waits = [
        goroutine.waits_for for goroutine in snapshot.goroutines if goroutine.state in LOCK_WORDS
    ]
    if not all(wait.may_hold or wait.behind for wait in waits):
        return None
    return frozenset(goid for waits_for in waits for goid in waits_for.may_hold)
