"""Secrets in files: passwords and tokens are never in the configuration, arguments or logs."""

from __future__ import annotations

import os
import stat
from typing import Final

_MAX_BYTES: Final = 16 << 10


def read_secret(path: str) -> str:
    """The secret in a file, without surrounding white space.

    Raises ValueError with the end of a sentence that begins with the file's name.
    """
    try:
        with open(path, "rb", opener=_opened) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("is not a regular file")
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"can't be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise ValueError(f"is longer than {_MAX_BYTES >> 10} KiB")
    try:
        secret = data.decode().strip()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None  # the error would hold the secret
    if not secret:
        raise ValueError("is empty")
    if not secret.isprintable():
        raise ValueError("has more than one line, or control characters")
    return secret


def _opened(path: str, _: int) -> int:
    """A descriptor of the file; a pipe without a writer does not block."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
