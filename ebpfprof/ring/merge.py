"""One profile of many windows: their sum, or of a kind of a moment the last one of each process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.delta import require_same_types, summed
from ebpfprof.profile.model import Profile
from ebpfprof.profile.wait_slices import WaitSlices
from ebpfprof.profilers.account import RecordingAccount
from ebpfprof.profilers.registry import find_kind
from ebpfprof.ring.index import IndexedFile, IndexedProcess
from ebpfprof.ring.reader import RecordedTime, RingArchive


@dataclass(frozen=True, slots=True)
class Merged:
    """The profile of some windows.

    `files` are those that are in it, `faults` sentences about those that can't be read, `gone`
    the number of those that were removed meanwhile.
    """

    profile: Profile
    files: Sequence[IndexedFile]
    faults: Sequence[str]
    gone: int


def merged_windows(
    reader: RingArchive,
    time: RecordedTime,
    kind: str,
    processes: Sequence[IndexedProcess],
    title: str,
    *,
    has_slices: bool = False,
) -> Merged | None:
    """The profile of a kind of these processes in a time; None if there is no file of it.

    `title` stands in its first comment in place of that of a single process. With `has_slices`, a
    profile of a kind with lengths has the windows as slices. Raises InvalidProfile if no file can
    be read.
    """
    numbers = {process.number for process in processes}
    files = [file for file in time.files if file.kind == kind and file.process in numbers]
    if not files:
        return None
    listed = find_kind(kind)
    is_moment = listed is not None and listed.is_moment
    if is_moment:
        files = list({time.processes[file.process].process.key: file for file in files}.values())
    slices = WaitSlices() if has_slices and listed and listed.has_lengths else None
    if slices:
        files.sort(key=lambda file: file.start_ns)
    read: list[IndexedFile] = []
    faults: list[str] = []
    gone = 0

    def profiles() -> Iterator[Profile]:
        nonlocal gone
        types: Profile | None = None
        for file in files:
            try:
                profile = reader.load(file)
                require_same_types(profile, types or profile)
            except FileNotFoundError:
                gone += 1
            except (OSError, InvalidProfile) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                faults.append(f"{file.path} is left out: {reason}")
            else:
                types = types or replace(profile, samples=())
                read.append(file)
                if slices:
                    slices.add_file(profile)
                yield profile

    # Sums of errors and losses that describe several processes at a moment are not theirs.
    change = _without_account if is_moment and len(files) > 1 else _same
    first = next(changed := map(change, profiles()), None)
    if first is None:
        if faults:
            raise InvalidProfile("No file can be read. " + faults[0])
        return None
    profile = summed(chain((first,), changed))
    account = profile.account
    if isinstance(account, RecordingAccount):
        account = replace(account, title=title, own_cost="")
        profile = profile.accounted(account)
    return Merged(replace(profile, slices=slices), read, faults, gone)


_Change = Callable[[Profile], Profile]


def _same(profile: Profile) -> Profile:
    return profile


def _without_account(profile: Profile) -> Profile:
    return replace(profile, account=None)
