"""Reads back from the local ring what a sink could not deliver in time."""

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
"""For how long after its end a window may still wait to be written."""


class RingBacklog:
    """The ring to one sink. For one thread, but for `is_there`."""

    def __init__(self, path: Callable[[], Path | None]) -> None:
        """`path` is where the ring is now, None without one."""
        self._path = path
        self._archive: RingArchive | None = None

    def is_there(self) -> bool:
        """Whether windows can wait in the ring."""
        return self._path() is not None

    def window(self, waiting: InRing) -> ServiceWindow:
        """The window with those of its profiles that are still there.

        Raises Refused if none is, RetryLater if they may not be there yet.
        """
        profiles: dict[str, Profile] = {}
        why = "the ring had no room for it any more"
        for _ in range(2):  # the folder or its index may have been replaced: then open it again
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
        found = archive.between(begun_ns, begun_ns + 1)
        ours = {
            number
            for number, each in found.processes.items()
            if (each.process.pid, each.process.start_ns) == (window.pid, window.process_start_ns)
        }
        profiles: dict[str, Profile] = {}
        for file in found.files:
            is_of_it = file.process in ours and file.start_ns == begun_ns
            if is_of_it and file.kind in waiting.kinds:
                with suppress(FileNotFoundError, InvalidProfile):  # it made room
                    profiles[file.kind] = archive.load(file)
        if archive.warning:  # it has an index of its own, which does not grow
            self.close()
        return profiles

    def _opened(self) -> RingArchive:
        path = self._path()
        if path is None:
            raise InvalidProfile("There is no ring any more.")
        if self._archive is None or self._archive.path != path:
            self.close()
            self._archive = RingArchive(path)
        return self._archive
