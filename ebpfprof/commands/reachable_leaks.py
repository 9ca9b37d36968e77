"""The option --leaks of `dump` and `doctor`: goroutines that nothing which can run can wake."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.goroutines import GoroutineDump
    from ebpfprof.profile.references import LeakedGoroutines

leaks_option = click.option(
    "--leaks",
    "finds_leaks",
    is_flag=True,
    help="Also find goroutines that can never continue because nothing that can run refers to what "
    "they wait for. This reads the whole heap, twice if there are any.",
)
"""Passed as `finds_leaks`."""


def with_leaks(dump: GoroutineDump, go: GoTarget) -> GoroutineDump:
    """The dump, with the goroutines that nothing can reach marked.

    Raises TargetGone, UnreadableMemory or GoTableError.
    """
    from ebpfprof.goruntime.references.reader import ReferenceReader  # few need it

    return marked(dump, ReferenceReader(go).leaked())


def marked(dump: GoroutineDump, leaked: LeakedGoroutines) -> GoroutineDump:
    """The dump, with these goroutines marked."""
    return replace(
        dump,
        goroutines=tuple(
            replace(goroutine, is_unreachable=goroutine.wait in leaked.waits)
            for goroutine in dump.goroutines
        ),
    )
