"""The option --source: folders with source files to show with a profile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ebpfprof.process.source_files import SourceFiles
    from ebpfprof.profile.model import Profile

_MAX_CHARACTERS = 16 << 20

source_option = click.option(
    "--source",
    multiple=True,
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Show source code below DIR in HTML: the lines in the profile and a few around them, if "
    "the user who called sudo may read the file. May be repeated.",
)


def require_html_for(folders: tuple[str, ...], format_name: str) -> None:
    """Raise click.UsageError for --source without an HTML file to put the lines into."""
    if folders and format_name != "html":
        raise click.UsageError("--source needs HTML: add -f html.")


@contextmanager
def opened_sources(folders: tuple[str, ...]) -> Iterator[SourceFiles | None]:
    """The files below the folders of --source; None without any. Raises click.UsageError."""
    if not folders:
        yield None
        return
    from ebpfprof.console.text import printable
    from ebpfprof.process.source_files import SourceError, SourceFiles

    try:
        files = SourceFiles(folders)
    except SourceError as error:
        raise click.UsageError(printable(str(error))) from error
    with files:
        yield files


def texts_of(profile: Profile, sources: SourceFiles) -> dict[str, Any]:
    """The lines of readable files that a profile names, for its HTML file."""
    from ebpfprof.process.source_files import SourceError, named_lines

    texts, size = {}, 0
    for file, lines in named_lines([profile]).items():
        try:
            text = sources.read(file, lines)
        except SourceError:
            continue
        size += sum(map(len, text.lines.values()))
        if size > _MAX_CHARACTERS:
            break
        texts[file] = text.as_json(profile.time_ns)
    return texts
