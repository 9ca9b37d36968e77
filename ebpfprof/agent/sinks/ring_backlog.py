"""Reads windows that a sink could not deliver in time back from the local ring."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from ebpfprof.agent.sinks.sink import Refused, RetryLater
from ebpfprof.agent.sinks.waiting import InRing
from ebpfprof.errors import EbpfprofError, InvalidProfile
from ebpfprof.profile.model import Profile
from ebpfprof.profile.service import ServiceWindow
from ebpfprof.ring.reader import RingArchive

_UNTIL_WRITTEN_S: Final = 120.0
"""How long after its end a window may still wait to be written."""


class RingBacklog:
    """The ring for one sink. For one thread, except `is_there`."""

    def __init__(self, path: Callable[[], Path | None]) -> None:
        """`path` returns the current folder of the ring, None without one."""
        self._path = path
        self._archive: RingArchive | None = None

    def is_there(self) -> bool:
        """Whether windows can wait in the ring."""
        return self._path() is not None

    def window(self, waiting: InRing) -> ServiceWindow:
        """The window with the profiles that the ring still has.

        Raises Refused if it has none, RetryLater if they may not be written yet.
        """
        profiles: dict[str, Profile] = {}
        why = "the ring has removed it"
        for _ in range(2):  # the folder or its index may have been replaced
            try:
                profiles = self._profiles(waiting)
            except (EbpfprofError, OSError) as error:
                why = f"it can't be read back from the ring: {error}"
            if profiles:
                return replace(waiting.window, profiles=profiles)
            self.close()
        if time.time() - waiting.window.end_s < _UNTIL_WRITTEN_S:
            raise RetryLater("it is not in the ring yet")
        raise Refused(why, "not_in_ring")

    def close(self) -> None:
        """Close the ring."""
        if self._archive:
            self._archive.close()
            self._archive = None

    def _profiles(self, waiting: InRing) -> dict[str, Profile]:
        window = waiting.window
        archive = self._opened()
        begun_ns = round(window.start_s * 1e9)
        recorded = archive.between(begun_ns, begun_ns + 1)
        ours = {
            number
            for number, process in recorded.processes.items()
            if (process.process.pid, process.process.start_ns)
            == (window.pid, window.process_start_ns)
        }
        profiles: dict[str, Profile] = {}
        for file in recorded.files:
            is_of_it = file.process in ours and file.start_ns == begun_ns
            if is_of_it and file.kind in waiting.kinds:
                with suppress(FileNotFoundError, InvalidProfile):  # it was removed
                    profiles[file.kind] = archive.load(file)
        if archive.warning:  # its index is a copy that does not grow
            self.close()
        return profiles

    def _opened(self) -> RingArchive:
        path = self._path()
        if path is None:
            raise InvalidProfile("The ring was removed.")
        if self._archive is None or self._archive.path != path:
            self.close()
            self._archive = RingArchive(path)
        return self._archive
