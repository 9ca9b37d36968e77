"""A process and its program, opened for one request."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from ebpfprof.goruntime.plugins import open_plugins, with_plugin_code
from ebpfprof.goruntime.process import for_user
from ebpfprof.process.process import Target
from symbolizer import GoBinary, SymbolizerError


@contextmanager
def opened(pid: int) -> Iterator[tuple[Target, GoBinary]]:
    """A process and its program; errors of its file come out as those of ebpfprof.errors.

    Raises NoSuchProcess, TargetGone, PermissionDenied, CorruptBinary or UnsupportedTarget.
    """
    with Target(pid) as target:
        try:
            with target.open_elf() as elf:
                binary = GoBinary.open(elf, allow_unknown_version=True)
                load_bias = target.load_bias(elf.entry)
                plugins = open_plugins(target, binary, load_bias)
                yield target, with_plugin_code(binary, load_bias, plugins)
        except (SymbolizerError, struct.error) as error:
            raise for_user(target, error) from error
