"""Each way into the profiler for bytes that a target, or the author of a file, can choose."""

from __future__ import annotations

from typing import Final

from tests.fuzz.driver import Parser
from tests.fuzz.ways.go import GO
from tests.fuzz.ways.heap import HEAP
from tests.fuzz.ways.heap_buckets import HEAP_BUCKETS
from tests.fuzz.ways.identity import IDENTITY
from tests.fuzz.ways.kernel_files import KERNEL_FILES
from tests.fuzz.ways.locks import LOCKS
from tests.fuzz.ways.memory import MEMORY
from tests.fuzz.ways.memory_parts import MEMORY_PARTS
from tests.fuzz.ways.native import NATIVE
from tests.fuzz.ways.profiles import PROFILES
from tests.fuzz.ways.references import REFERENCES
from tests.fuzz.ways.ring import RING
from tests.fuzz.ways.runtime_counters import RUNTIME_COUNTERS
from tests.fuzz.ways.stack_objects import STACK_OBJECTS
from tests.fuzz.ways.text import TEXT
from tests.fuzz.ways.threads import THREADS
from tests.fuzz.ways.tracebacks import TRACEBACKS
from tests.fuzz.ways.wait_causes import WAIT_CAUSES
from tests.fuzz.ways.waiting import WAITING

PARSERS: Final[tuple[Parser, ...]] = (
    *NATIVE,
    *GO,
    *MEMORY,
    *LOCKS,
    *HEAP,
    *HEAP_BUCKETS,
    *WAIT_CAUSES,
    *WAITING,
    *KERNEL_FILES,
    *THREADS,
    *MEMORY_PARTS,
    *STACK_OBJECTS,
    *RUNTIME_COUNTERS,
    *TRACEBACKS,
    *TEXT,
    *IDENTITY,
    *PROFILES,
    *RING,
    *REFERENCES,
)
