"""How much of a Go program's stacks is kept: numbers that BPF programs get from here."""

from __future__ import annotations

from typing import Final

MAX_DEPTH: Final = 136
"""Return addresses of a stack: Go's 128 logical frames, and those that it drops at the leaf."""
MAX_LOCK_CALLERS: Final = 16
"""Places that call the runtime's functions for locks."""
