"""A sink that writes pprof files into a folder, and what they are into an index beside them."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from ebpfprof.agent.sinks.sink import Delivery, Item
from ebpfprof.export import pprof
from ebpfprof.profile.service import ServiceWindow

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")
INDEX: Final = "index.jsonl"


class FolderDelivery:
    """Writes SERVICE-PID-MILLISECONDS.KIND.pb.gz files, and a line of JSON for each window."""

    def __init__(self, folder: str) -> None:
        """The folder is made if it is not there."""
        self._folder = Path(folder)

    def deliver(self, item: Item) -> None:
        """Write the files of a window whole or not at all, and then its line. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        profiles = item.profiles if isinstance(item, ServiceWindow) else {}
        line = asdict(replace(item, profiles={}) if isinstance(item, ServiceWindow) else item)
        if isinstance(item, ServiceWindow):
            name = _UNSAFE.sub("_", item.identity.service)[:64]
            stem = f"{name}-{item.pid}-{int(item.start_s * 1000)}"
            for kind, profile in profiles.items():
                path = self._folder / f"{stem}.{kind}.pb.gz"
                self._write(path, pprof.encode(profile))
                line["profiles"][kind] = path.name
        self._append(json.dumps(line, default=dict) + "\n")

    def beat(self) -> None:
        """There is nothing to do."""

    def go_on(self, before: Delivery) -> None:
        """There is nothing to do: each item is written whole."""

    def close(self) -> None:
        """There is nothing to give back."""

    def _write(self, path: Path, data: bytes) -> None:
        part = path.with_suffix(".part")
        with open(_opened(part, os.O_TRUNC), "wb") as file:
            file.write(data)
        os.replace(part, path)

    def _append(self, line: str) -> None:
        """Append a line to the index, whole or not at all."""
        with open(_opened(self._folder / INDEX, os.O_APPEND), "ab", buffering=0) as index:
            size = os.fstat(index.fileno()).st_size
            rest = line.encode()
            try:
                while rest:
                    rest = rest[index.write(rest) :]
            except OSError:
                os.ftruncate(index.fileno(), size)
                raise


def _opened(path: Path, flags: int) -> int:
    """A file that only we may read, to write to; no link is followed."""
    flags |= os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)
