"""The names and words of all that can be lost in the kernel, read from bpf/common/losses.h."""

from __future__ import annotations

import re
from functools import cache

from ebpfprof.kernel.sources import bpf_folder


@cache
def loss_kinds() -> tuple[tuple[str, str], ...]:
    """All (name, text) pairs, in the order of the kernel's `losses` array."""
    source = (bpf_folder() / "common" / "losses.h").read_text()
    return tuple(re.findall(r'^LOSS\((\w+), "([^"]+)"\)$', source, re.MULTILINE))
