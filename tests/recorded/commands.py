"""Commands on saved recordings and images, and what they show: data/golden/screen.NAME.txt."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ebpfprof.profile.service import ServiceIdentity, ServiceWindow
from ebpfprof.profilers.options import Options
from ebpfprof.ring.writer import Ring
from tests.images.image import image
from tests.images.target import NO_PID
from tests.recorded import pipeline, replay
from tests.recorded.program import SHOP, Program
from tests.recorded.recordings import RECORDINGS
from tests.recorded.replay import Shows, recorded
from tests.recorded.saved import Saved

TERMINAL: Final = 80, 24
_SERVICE: Final = ServiceIdentity("shop", version="1.2", pod="shop-7")
_OF_AGENT: Final = Options(kinds=("block", "mutex"), max_overhead=1.0)


@dataclass(frozen=True)
class Command:
    """A command line, and the recordings or states of `shop` that it is for.

    `terminal` as in replay.run().
    """

    line: str
    recordings: Sequence[str] = ()
    states: Sequence[str] = ()
    images: Sequence[str] = ()
    terminal: tuple[int, int] | None = TERMINAL
    is_over: bool = False
    """The agent recorded the processes before, a minute each: they have ended."""

    def there(self) -> list[Shows]:
        """The processes that are there."""
        if self.is_over:
            return []
        return [
            *map(recorded, self.recordings),
            *(Shows(SHOP.shown(state)) for state in self.states),
            *(Shows(image(version).shown()) for version in self.images),
        ]

    def programs(self) -> set[Program]:
        """The programs of the processes."""
        found = {RECORDINGS[name].program for name in self.recordings}
        return found | ({SHOP} if self.states else set())


_EXACT: Final = "--max-overhead 0 -d 1"
_HISTORY: Final = "history --path ring --since 07:30 --until 07:32"

COMMANDS: Final[Mapping[str, Command]] = {
    "attach-lock": Command(f"attach {{}} {_EXACT}", ["requests"]),
    "attach-lock-long": Command(f"attach {{}} {_EXACT} --long", ["requests"]),
    "attach-lock-table": Command(f"attach {{}} {_EXACT} --profile mutex --by-lock", ["requests"]),
    "attach-lock-folded": Command(
        f"attach {{}} {_EXACT} --profile block -f folded -o -", ["requests"], terminal=None
    ),
    "attach-lock-json": Command(
        f"attach {{}} {_EXACT} --profile mutex -f json -o -", ["requests"], terminal=None
    ),
    "attach-wakers": Command(f"attach {{}} {_EXACT} --profile wakers --long", ["requests"]),
    "attach-open": Command(f"attach {{}} {_EXACT} --profile block --open", ["hangs"]),
    "attach-labels": Command(
        f"attach {{}} {_EXACT} --profile block --labels tenant -f folded -o -",
        ["requests"],
        terminal=None,
    ),
    "attach-bounded": Command("attach {} -d 30 --profile block,mutex", ["bounded"]),
    "attach-bounded-long": Command("attach {} -d 30 --profile block,mutex --long", ["bounded"]),
    "attach-one-in-eight": Command(
        "attach {} -d 1 --one-in-eight --profile block,mutex,wakers", ["eighth"]
    ),
    "attach-one-in-eight-long": Command(
        "attach {} -d 1 --one-in-eight --profile block,mutex,wakers --long", ["eighth"]
    ),
    "attach-one-in-eight-locks": Command(
        "attach {} -d 1 --one-in-eight --profile block,mutex --by-lock", ["eighth"]
    ),
    "attach-lengths": Command(
        f"attach {{}} {_EXACT} --profile block,mutex,wakers --long", ["lengths"]
    ),
    "attach-lengths-locks": Command(
        f"attach {{}} {_EXACT} --profile mutex --by-lock", ["lengths"], terminal=None
    ),
    "attach-lengths-json": Command(
        f"attach {{}} {_EXACT} --profile mutex -f json -o -", ["lengths"], terminal=None
    ),
    "attach-idle": Command(f"attach {{}} {_EXACT}", ["idle"]),
    "attach-hangs": Command("attach {} -d 30", ["hangs"]),
    "attach-losses": Command(f"attach {{}} {_EXACT}", ["losses"]),
    "attach-old-go": Command(f"attach {{}} {_EXACT}", ["oldgo"]),
    "attach-several": Command(f"attach {{}} {{}} {_EXACT}", ["requests", "idle"]),
    "attach-piped": Command(f"attach {{}} {_EXACT}", ["requests"], terminal=None),
    "attach-wall": Command("attach {} --profile wall -d 2", states=["stuck"]),
    "attach-threads": Command(
        "attach {} --profile threads,threadcreate -d 1 --long", states=["stuck"]
    ),
    "attach-goroutine": Command("attach {} --profile goroutine -d 1 --long", states=["stuck"]),
    "attach-heap": Command("attach {} --profile heap,allocs -d 1 --long", images=["1.27"]),
    "history": Command(_HISTORY, ["requests", "bounded"], is_over=True),
    "history-shop": Command(f"{_HISTORY} --name shop", ["requests", "bounded"], is_over=True),
    "history-compare": Command(
        "history --path ring --since 07:31 --until 07:32 --name shop --compare 1m",
        ["requests", "bounded"],
        is_over=True,
    ),
    "history-json": Command(f"{_HISTORY} --json", ["requests"], terminal=None, is_over=True),
    "list": Command("list", states=["idle", "stuck"]),
    "list-json": Command("list --json", states=["idle"], terminal=None),
    "dump": Command("dump {}", states=["stuck"]),
    "dump-all": Command("dump {} --all", states=["stuck"]),
    "dump-json": Command("dump {} --json", states=["stuck"], terminal=None),
    "dump-old-go": Command("dump {}", images=["1.19"]),
    "doctor-stuck": Command("doctor {}", states=["stuck"]),
    "doctor-fine": Command("doctor {}", states=["idle"]),
    "doctor-several": Command("doctor {} {}", states=["idle", "stuck"]),
    "doctor-json": Command("doctor {} --json", states=["stuck"], terminal=None),
    "memory": Command("memory {}", images=["1.27"]),
    "memory-all": Command("memory {} --all", images=["1.27"]),
    "memory-json": Command("memory {} --json", images=["1.27"], terminal=None),
    "memory-old-go": Command("memory {}", images=["1.19"]),
}


def golden_name(name: str) -> str:
    """The name of the file with the output of a command."""
    return f"screen.{name}.txt"


def all_outputs() -> dict[str, bytes]:
    """What all commands show now, by the names of their files."""
    return {golden_name(name): output_of(each) for name, each in COMMANDS.items()}


def outputs_with(program: Program) -> dict[str, bytes]:
    """The same of those commands for which a program is needed."""
    return {
        golden_name(name): output_of(each)
        for name, each in COMMANDS.items()
        if program in each.programs()
    }


def output_of(command: Command) -> bytes:
    """All that a command shows, below what was typed."""
    with tempfile.TemporaryDirectory() as folder:
        ran = replay.run(
            command.line,
            *command.there(),
            folder=Path(folder),
            terminal=command.terminal,
            prepare=(lambda path: _keep(path / "ring", command.recordings))
            if command.is_over
            else None,
        )
    text = f"$ ebpfprof {command.line}\n".encode() + ran.stdout
    if ran.stderr:
        text += b"--- stderr\n" + ran.stderr
    if ran.code:
        text += f"--- status {ran.code}\n".encode()
    return text


def _keep(folder: Path, recordings: Sequence[str]) -> None:
    """Store the recordings as the agent does, a minute each from half an hour ago on."""
    begun_s = time.time() - 1800
    with Ring(folder, keep_free_bytes=0, clock=time.time) as ring:
        for number, name in enumerate(recordings):
            shows = recorded(name)
            saved = Saved.load(name)
            with pipeline.opened(shows.shown, saved) as replayed:
                profiles = replayed.report(_OF_AGENT).profiles
            assert ring.write(
                ServiceWindow(
                    *(_SERVICE, NO_PID, 1, "shop", "go1.27.3"),
                    *(begun_s + 60 * number, begun_s + 60 * number + 60),
                    {each.kind: each for each in profiles},
                )
            ), ring.state()
