"""What happens with a process now: one state, in one sentence, for the page and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ebpfprof.continuous.process import Phase

if TYPE_CHECKING:
    from ebpfprof.continuous.process import RecordedProcess


def as_json(process: RecordedProcess) -> dict[str, Any]:
    """`state`: idle, reading, attaching, recording or ended; `says`: the same for people."""
    state, says = _state(process)
    return {"state": state, "says": says}


def _state(process: RecordedProcess) -> tuple[str, str]:
    if process.ending is not None:
        ending = f"{process.ending[:1].upper()}{process.ending[1:]}"
        rest = " What was recorded until then is still here." if process.history.windows else ""
        return "ended", f"{ending}.{rest}"
    if process.is_recording:
        has_numbers = process.history.windows or process.history.present
        soon = "" if has_numbers else ": the first numbers come in a few seconds"
        return "recording", f"Recording{soon}."
    # A lease that was just given begins in a moment.
    if process.phase is Phase.READING or (process.is_leased and process.target is None):
        return "reading", "Reading the program's symbols."
    if process.phase is Phase.ATTACHING or process.is_leased:
        return "attaching", "Attaching to the process."
    return "idle", "Not recording."
