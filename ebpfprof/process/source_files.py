"""The text of source files, for readers of a profile: only below folders that the user named.

A profile's names of files come from the target, which may name any file of the machine. Hence:
- only files below a folder of `--source` are opened, by openat2() with RESOLVE_BENEATH and without
  following a link, only regular files, and only those with the suffix of a source file;
- a process of its own opens them, with the rights of the user who typed sudo, and with no
  capability: it reads nothing that this user could not read;
- only the lines that the profile names are returned, and a few around them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from ebpfprof.console.output_folder import groups_of, invoking_user
from ebpfprof.console.text import well_formed
from ebpfprof.errors import EbpfprofError
from ebpfprof.privileges.capabilities import give_up
from ebpfprof.process.file_opener import open_beneath
from ebpfprof.profile.model import Profile
from ebpfprof.system.channel import Frame
from ebpfprof.system.closing import Closing
from ebpfprof.system.file_worker import FileWorker, NoAnswerError

SUFFIXES: Final = frozenset(
    (".go", ".s", ".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".inc", ".rs", ".zig")
)
_MAX_BYTES: Final = 4 << 20
_AROUND: Final = 8
_MAX_LINE: Final = 400  # characters; the rest of a generated line helps nobody
_FOLDER: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class SourceError(EbpfprofError):
    """The file can't be shown; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class SourceText:
    """A few lines of a file, by their numbers; `path` is where it was read."""

    path: str
    changed_ns: int
    """When it was last written, in nanoseconds of Unix time."""
    lines: dict[int, str]

    def as_json(self, recorded_ns: int) -> dict[str, Any]:
        """What sourceview.js shows; the recording began at this Unix time."""
        is_changed = self.changed_ns > recorded_ns
        return {"path": well_formed(self.path), "changed": is_changed, "lines": self.lines}


class SourceFiles(Closing):
    """Reads lines of source files below `folders`, in a process of its own.

    To be made before there are threads, and before rights are given up; a context manager.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        """Open the folders with the rights of the invoking user. Raises SourceError."""
        paths = [os.path.abspath(folder) for folder in folders]
        self._worker = FileWorker(_SourceTask, paths)
        try:
            self._ask("", [])
        except BaseException:  # Ctrl-C too: without an object nothing closes the worker
            self._worker.close()
            raise

    def read(self, file: str, lines: Collection[int]) -> SourceText:
        """The lines of a file that a profile names, and a few around them. Raises SourceError."""
        path, changed_ns, texts = self._ask(file, sorted(lines))
        return SourceText(path, changed_ns, {int(line): text for line, text in texts})

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _ask(self, file: str, lines: list[int]) -> Any:  # noqa: ANN401 - JSON
        try:
            return self._worker.ask([file, lines]).message
        except NoAnswerError as error:
            raise SourceError(f"The file system of the source {error}.") from error
        except EbpfprofError as error:
            raise SourceError(str(error)) from error


class _SourceTask:
    """What the process does. It has given up its rights before it opens anything."""

    def __init__(self, folders: Sequence[str]) -> None:
        if user := invoking_user():
            os.setgroups(sorted(groups_of(user)))
            os.setgid(user.gid)
            os.setuid(user.uid)
        give_up(())
        self._folders: list[tuple[str, int]] = []
        self._problem = ""
        for folder in folders:
            try:
                self._folders.append((folder, os.open(folder, _FOLDER)))
            except OSError as error:
                self._problem = f"Cannot open {folder}, which --source names: {error.strerror}."

    def begin(self) -> None:
        """Do nothing: each request stands alone."""

    def answer(self, request: Any, fds: Sequence[int]) -> Frame:  # noqa: ANN401 - JSON
        """Path, time and lines of a file; "" asks whether the folders are open.

        Raises SourceError.
        """
        file, lines = request
        if self._problem:
            raise SourceError(self._problem)
        return Frame(self._read(file, lines) if file else None)

    def _read(self, file: str, lines: list[int]) -> list[Any]:
        if PurePosixPath(file).suffix.lower() not in SUFFIXES:
            raise SourceError("Not a source file name.")
        for folder, folder_fd in self._folders:
            for path in candidates(file, folder):
                try:
                    fd = open_beneath(folder_fd, path)
                except (OSError, ValueError):  # ValueError: a NUL in the name
                    continue
                with open(fd, "rb") as opened:
                    data = opened.read(_MAX_BYTES + 1)
                    changed_ns = os.fstat(fd).st_mtime_ns
                if len(data) > _MAX_BYTES:
                    raise SourceError(f"{path} is larger than {_MAX_BYTES >> 20} MiB.")
                return [os.path.join(folder, path), changed_ns, near(data, lines)]
        named = ", ".join(folder for folder, _ in self._folders)
        raise SourceError(f"There is no such file below {named} that you may read.")


def candidates(file: str, folder: str) -> Iterator[str]:
    """Where below `folder` a file may be that a profile names: relative paths, likeliest first.

    It may have been built elsewhere: what comes after a part with the folder's name is looked for
    below the folder (/build/shop/api/api.go and shop/api/api.go are api/api.go below /src/shop).
    """
    parts = PurePosixPath(file).parts
    if not parts or ".." in parts or "\0" in file:
        return
    own = PurePosixPath(folder).parts
    if parts[: len(own)] == own:
        yield "/".join(parts[len(own) :])
    if parts[0] != "/":
        yield "/".join(parts)
    for at, part in enumerate(parts[:-1]):
        # With -trimpath the folder of a module is called module@version.
        if part.partition("@")[0] == own[-1] and parts[: at + 1] != own:
            yield "/".join(parts[at + 1 :])


def near(data: bytes, lines: Collection[int]) -> list[tuple[int, str]]:
    """The lines with these numbers, and a few around each."""
    texts = data.decode("utf-8", "replace").split("\n")
    wanted = {
        at
        for line in lines
        for at in range(max(line - _AROUND, 1), min(line + _AROUND, len(texts)) + 1)
    }
    return [(at, texts[at - 1].rstrip("\r")[:_MAX_LINE]) for at in sorted(wanted)]


def named_lines(profiles: Iterable[Profile]) -> dict[str, set[int]]:
    """The files that profiles name, with the numbers of their lines."""
    lines: dict[str, set[int]] = {}
    for profile in profiles:
        for sample in profile.samples:
            for frame in sample.frames:
                if frame.file and frame.line > 0:
                    lines.setdefault(frame.file, set()).add(frame.line)
    return lines
