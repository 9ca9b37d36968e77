"""The output file: created before the recording, complete or absent, never lost silently."""

import errno
import os
import re
import secrets
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from ebpfprof.console.output_folder import OutputFolder, Owner, unguessable
from ebpfprof.console.text import printable
from ebpfprof.errors import OutputError
from ebpfprof.system.signals import interruptible

IfTaken = Literal["refuse", "replace", "number"]
"""What to do if a file has the name: "number" writes to NAME-2, or the next free number."""

STDOUT_FD = 1
_MOST_NUMBERS = 1000


def default_name(
    command: str, pid: int, kind: str, when: time.struct_time, suffix: str = ".pb.gz"
) -> str:
    """COMMAND-PID-DATE-TIME.KIND.pb.gz: the files of one process sort by time.

    The command comes from the target: unsafe characters are replaced.
    """
    safe = re.sub(r"[^A-Za-z0-9._+-]", "_", command).lstrip(".-")[:64]
    return f"{safe or 'process'}-{pid}-{time.strftime('%Y%m%d-%H%M%S', when)}.{kind}{suffix}"


def named_for(path: Path, part: str, suffix: str, endings: Sequence[str]) -> Path:
    """The path of one of several files: `part` stands before the ending that the name has.

    A name without one of `endings` gets `suffix`: NAME, block gives NAME.block.pb.gz.
    """
    name = path.name
    ending = max(
        (ending for ending in endings if name.lower().endswith(ending)), key=len, default=""
    )
    stem = name[: len(name) - len(ending)]
    return path.with_name(f"{stem}.{part}{name[len(stem) :] or suffix}")


class OutputFile:
    """Where one profile will be written: prepare(), then commit() or discard()."""

    def __init__(
        self,
        name: str,
        fd: int,
        directory: "OutputFolder | None",
        *,
        owner: Owner | None,
        suffix: str,
        if_taken: IfTaken,
    ) -> None:
        self._name = name
        self._fd = fd
        self._directory = directory
        self._owner = owner
        self._suffix = suffix
        self._if_taken = if_taken
        self._open = True

    @classmethod
    def prepare(
        cls,
        path: Path | Literal["-"],
        *,
        owner: Owner | None = None,
        is_text: bool = False,
        suffix: str = ".pb.gz",
        if_taken: IfTaken = "refuse",
    ) -> Self:
        """Prepare the output, so that writing can hardly fail later; "-" is stdout.

        The file appears under its name, with mode 0600 and belonging to `owner`, at commit().
        File names of its format end in `suffix`. Raises OutputError if `path` exists and `if_taken`
        is "refuse", if it cannot be written, is a directory, a symbolic link or anything but a
        regular file, or if stdout is a terminal, unless it `is_text`.
        """
        if path == "-":
            fd = _stdout(is_text=is_text)
            return cls("-", fd, None, owner=owner, suffix=suffix, if_taken=if_taken)
        shown = printable(str(path))
        directory = _free_place(path, if_taken)
        try:
            fd = directory.create()
        except BaseException as error:  # Ctrl-C too: nobody else closes the folder
            directory.close()
            if not isinstance(error, OSError | ValueError):
                raise
            raise _cannot_write(shown, error) from error
        return cls(str(path), fd, directory, owner=owner, suffix=suffix, if_taken=if_taken)

    @property
    def name(self) -> str:
        """The path that was given, or, once it is written, with its number; "-" is stdout."""
        return self._name

    def commit(self, data: bytes) -> None:
        """Write `data`, make it durable, and put it in place.

        Raises OutputError if that fails; `data` is then saved in the current or the temporary
        directory under a new name, which the message gives.
        """
        if not self._open:
            raise ValueError("The output is already closed.")
        try:
            interruptible(
                lambda: _write_all(self._fd, data)
            )  # a reader of stdout may take its time
            if self._directory is not None:
                self._publish(self._directory)
        except (OSError, OutputError) as error:
            self.discard()
            why = str(error)
            if isinstance(error, OSError):
                shown = "standard output" if self._directory is None else printable(self._name)
                why = f"Could not write {shown}: {_reason(error)}."
            raise OutputError(f"{why} {_rescue(data, self._suffix, self._owner)}") from error
        finally:
            self.discard()

    def _publish(self, directory: "OutputFolder") -> None:
        """Give the file its name, or the next free one. Raises OSError, OutputError."""
        path = Path(self._name)
        replaces = self._if_taken == "replace"
        if self._if_taken != "number":
            directory.check_free(path.name, printable(path.name), replaces=replaces)
            directory.publish(self._fd, path.name, self._owner, replaces=replaces)
            return
        first = path.name.removesuffix(self._suffix)
        for number in range(1, _MOST_NUMBERS):
            name = path.name if number == 1 else f"{first}-{number}{self._suffix}"
            with suppress(FileExistsError):  # the next number may be free
                directory.publish(self._fd, name, self._owner, replaces=False)
                self._name = str(path.with_name(name))
                return
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def discard(self) -> None:
        """Leave nothing behind. Does nothing after commit(), or the second time."""
        if not self._open:
            return
        self._open = False
        with suppress(OSError):  # no file is wanted any more
            os.close(self._fd)
        if self._directory is not None:
            self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.discard()


def require_free_place(path: Path, *, replaces: bool) -> None:
    """Check that a file can get this path, before any work is done for it; "-" is stdout.

    Raises OutputError where the folder is not there, or the name is taken, unless by a regular file
    and `replaces`.
    """
    if str(path) != "-":
        _free_place(path, "replace" if replaces else "refuse").close()


def _free_place(path: Path, if_taken: IfTaken) -> OutputFolder:
    """The folder of the path, open. Raises OutputError as OutputFile.prepare."""
    name, shown = Path(path).name, printable(str(path))
    if name in ("", ".."):
        raise OutputError(f"{shown} is a directory: give the name of a file in it with -o.")
    try:
        directory = OutputFolder.open(Path(path).parent)
    except (OSError, ValueError) as error:
        raise OutputError(
            f"Cannot open the directory of {shown}: {_reason(error)}. Choose another place with -o."
        ) from error
    try:
        if if_taken != "number":
            directory.check_free(name, shown, replaces=if_taken == "replace")
    except BaseException as error:  # Ctrl-C too: nobody else closes the folder
        directory.close()
        if not isinstance(error, OSError | ValueError):
            raise
        raise _cannot_write(shown, error) from error
    return directory


def _cannot_write(shown: str, error: Exception) -> OutputError:
    return OutputError(f"Cannot write {shown}: {_reason(error)}. Choose another place with -o.")


def _stdout(*, is_text: bool) -> int:
    if os.isatty(STDOUT_FD) and not is_text:
        raise OutputError(
            "A profile is binary and not for a terminal: redirect standard output, or name a "
            "file with -o."
        )
    try:
        return os.dup(STDOUT_FD)
    except OSError as error:
        raise OutputError(
            f"Standard output cannot be used: {_reason(error)}. Name a file with -o."
        ) from error


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _rescue(data: bytes, suffix: str, owner: Owner | None) -> str:
    """Save `data` elsewhere; return the sentence that says where, or that it is lost."""
    failures = []
    for place in (_current_directory, _private_directory):
        try:
            return (
                f"What was recorded was saved as {printable(place(data, suffix, owner))} instead."
            )
        except (OSError, OutputError) as error:
            failures.append(_reason(error))
    return (
        "The profile is lost: neither the current directory nor the temporary one "
        f"could take it ({'; '.join(failures)})."
    )


def _current_directory(data: bytes, suffix: str, owner: Owner | None) -> str:
    path = os.getcwd()
    return _save(OutputFolder.open(Path()), f"{path}/{_rescued(suffix)}", data, owner)


def _private_directory(data: bytes, suffix: str, owner: Owner | None) -> str:
    """Save `data` in a new directory below the temporary one that only `owner` can enter."""
    path = tempfile.gettempdir()
    above = OutputFolder.open(Path(path))
    try:
        name = unguessable().lstrip(".")
        directory = above.make_private(name, owner)
        try:
            return _save(directory, f"{path}/{name}/{_rescued(suffix)}", data, owner)
        except BaseException:  # Ctrl-C too: no empty directory may stay
            above.remove_directory(name)
            raise
    finally:
        above.close()


def _rescued(suffix: str) -> str:
    return f"ebpfprof-{secrets.token_hex(4)}{suffix}"


def _save(directory: OutputFolder, path: str, data: bytes, owner: Owner | None) -> str:
    try:
        # The plainest way: a nameless file may be what has just failed.
        fd = directory.create_named()
        try:
            _write_all(fd, data)
            directory.publish(fd, Path(path).name, owner, replaces=False)
        finally:
            os.close(fd)
    finally:
        directory.close()
    return path


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error).rstrip(".")
