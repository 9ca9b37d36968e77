"""The child process of `serve` that reads what keeps objects alive, without defaults from files.

Its parent sends which process to read, and in which form the answer is to be. That comes as bytes,
in JSON: {"answer": {"result": null}}, or {"answer": {"error": ...}}. Users do not start it: help,
docs and completion omit it.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from ebpfprof.goruntime.open_processes import OpenProcess
    from ebpfprof.profile.references import References

NAME: Final = "served-references"
_STDIN: Final = 0
_NICE: Final = 10
_MOST_GROUPS: Final = 30


@click.command(NAME, hidden=True)
def command() -> None:
    """Read for the parent what keeps objects alive."""
    from ebpfprof.system import signals
    from ebpfprof.system.channel import ChannelError, MessageChannel, failure

    signals.ignore()  # the end of its parent, or what that sends, ends it
    os.nice(_NICE)  # the program and other requests come first
    with (
        MessageChannel.to_parent(_STDIN) as channel,
        suppress(ChannelError),
    ):  # its parent has ended
        try:
            data = _read(**channel.receive().message)
        except ChannelError:
            raise
        except Exception as error:  # any error: our parent raises it
            channel.send({"answer": failure(error)})
        else:
            channel.send({"answer": {"result": None}}, data=data)


def _read(*, pid: int, opening: dict[str, Any], is_page: bool) -> bytes:
    """What keeps the objects of a process alive, as references.schema.json or for the page.

    Raises any of ebpfprof.errors.
    """
    from ebpfprof.export import references as exported
    from ebpfprof.goruntime.open_processes import OpenOptions, OpenProcesses
    from ebpfprof.goruntime.references.reader import ReferenceReader
    from ebpfprof.process.file_opener import WorkerFileOpener
    from ebpfprof.recording.drop_privileges import give_up_recording_rights

    give_up_recording_rights()
    began_s, now_s = time.monotonic(), time.time()
    with WorkerFileOpener() as files:
        processes = OpenProcesses(files, OpenOptions(**opening))
        with processes.open(pid) as process, process.target.allowance:
            target = process.target
            references = ReferenceReader(process.go()).references()
            if is_page:
                found = exported.page(
                    references, target.exe_name, round(now_s * 1e9), _leaks(process, references)
                )
                found |= {"time_s": now_s, "seconds": time.monotonic() - began_s}
            else:
                version = process.binary().version.text
                found = exported.document(references, pid, target.name, version, now_s)
    return json.dumps(found).encode()


def _leaks(process: OpenProcess, references: References) -> list[dict[str, Any]]:
    """The goroutines that can never continue, by stack: the largest groups."""
    from ebpfprof.commands.reachable_leaks import marked
    from ebpfprof.goruntime.waits.dump import GoroutineDumper
    from ebpfprof.profile.goroutines import groups
    from ebpfprof.server.findings import unreachable_as_json

    if not references.leaked.ids:
        return []
    dump = marked(GoroutineDumper(process.go()).dump_once(), references.leaked)
    leaked = groups(goroutine for goroutine in dump.goroutines if goroutine.is_unreachable)
    return [unreachable_as_json(group) for group in leaked[:_MOST_GROUPS]]
