"""A sink that writes pprof files into a folder, with an index of them."""

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
    """Writes SERVICE-PID-MILLISECONDS.KIND.pb.gz files, and a line of JSON per window."""

    def __init__(self, folder: str) -> None:
        """The folder is created if it does not exist."""
        self._folder = Path(folder)

    def deliver(self, item: Item) -> None:
        """Write each file of a window completely or not at all, then its line. Raises OSError."""
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
        """Nothing to do."""

    def go_on(self, before: Delivery) -> None:
        """Nothing to do: each item is written completely."""

    def close(self) -> None:
        """Nothing to release."""

    def _write(self, path: Path, data: bytes) -> None:
        part = path.with_suffix(".part")
        with open(_opened(part, os.O_TRUNC), "wb") as file:
            file.write(data)
        os.replace(part, path)

    def _append(self, line: str) -> None:
        """Append a line to the index, completely or not at all."""
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
    """A file to write to that only its owner may read; no link is followed."""
    flags |= os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)
