"""`ebpfprof doctor` with processes: samples of their goroutines, and what is stuck."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from ebpfprof.commands.reachable_leaks import with_leaks
from ebpfprof.commands.readable_targets import ReadableTargets, failure_as_json
from ebpfprof.console.terminal import has_color, say, width
from ebpfprof.console.text import duration
from ebpfprof.errors import DeadlockFound, ExitCode
from ebpfprof.export.tables import diagnosis as table
from ebpfprof.export.tables.goroutine_frames import wrapped
from ebpfprof.process.file_opener import WorkerFileOpener
from ebpfprof.profile.diagnosis import diagnosis

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.goruntime.open_processes import OpenOptions
    from ebpfprof.profile.diagnosis import Diagnosis

_SAMPLES: Final = 8


def examine_processes(
    pids: Sequence[int],
    *,
    apart_s: float,
    as_json: bool,
    finds_leaks: bool,
    opening: OpenOptions,
) -> int:
    """Examine processes one after the other, and print what is wrong; returns the exit code.

    With several processes, a summary comes first, a line for each. Progress goes to stderr. The
    exit code is that of the first error, else whether anything is stuck. Raises OutputError.
    """
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    summaries: list[str] = []
    is_stuck = False
    with WorkerFileOpener() as files:
        targets = ReadableTargets(files, opening)
        for number, pid in enumerate(pids, 1):
            diagnoses: list[Diagnosis] = []
            if not as_json:
                of = f" ({number} of {len(pids)})" if len(pids) > 1 else ""
                say(f"Sampling process {pid} for {duration(apart_s * 1e9)}{of} ...", err=True)
            with targets.reported(pid), ExitStack() as held:
                go, dumper = targets.open(pid, held)
                dump = dumper.dump(apart_s=apart_s, samples=_SAMPLES)
                if finds_leaks:
                    dump = with_leaks(dump, go)
                diagnoses.append(diagnosis(dump))
            for one in diagnoses:
                is_stuck = is_stuck or bool(one.stuck)
                rows.append(table.as_json(one))
                texts.append(table.render(one, width(sys.stdout), color=has_color(sys.stdout)))
                summaries.append(table.summary(one))
            if not diagnoses:
                rows.append(failure_as_json(pid, targets.failures[-1]))
                summaries.append(f"{pid}: not examined (see the error above)")
    if not as_json:
        if len(pids) > 1:
            lines = (part for line in summaries for part in wrapped(line, width(sys.stdout)))
            texts.insert(0, "".join(f"{line}\n" for line in lines))
        say("\n".join(texts), end="")
    code: int = DeadlockFound.exit_code if is_stuck else ExitCode.OK
    if targets.failures:
        code = targets.failures[0].exit_code
    if as_json:
        say(json.dumps({"exit_code": int(code), "processes": rows}, indent=1))
    return int(code)
