"""The programs of the recordings: built so that every checkout has the same bytes of them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from unittest import mock

from tests.images.image import Image
from tests.images.target import Shown
from tests.toolchains import WHEEL_VERSIONS, minor_of, toolchain

DATA: Final = Path(__file__).parent / "data"
_AGAIN: Final = (
    "The recordings hold addresses of another program than this one. If the source of {name} "
    "(tests/recorded) or its Go toolchain was changed on purpose, record again, as root, with code "
    "whose profiles are right: `python -m tests.recorded.record`. That replaces all of "
    "tests/recorded/data; review the difference."
)


@dataclass(frozen=True, eq=False)
class Program:
    """A Go program that is recorded.

    `states` are images of it: by name, what it does until then. The first one is of a program that
    does nothing: with it, recordings are turned into profiles. That image has what the outputs need
    of the program's file, the others have memory only.
    """

    name: str
    source: str
    version: str
    states: Mapping[str, Sequence[str]]
    _shown: dict[str, Shown] = field(default_factory=dict)

    def build(self, folder: Path) -> Path:
        """Build it in `folder`; its bytes depend on its source and on the toolchain only.

        Raises ToolchainError.
        """
        source = folder / "source"
        shutil.copytree(Path(__file__).parent / self.source, source)
        built = folder / self.name
        fixed = ("-trimpath", "-buildvcs=false", "-buildmode=exe", "-pgo=off", "-ldflags=-buildid=")
        tools = toolchain(minor_of(self.version))
        tools.go("build", *fixed, "-o", built, ".", cwd=source)
        return built

    def digest(self, program: Path) -> str:
        """What identifies the program: the version of Go, and the SHA-256 of its bytes."""
        digest = hashlib.sha256(program.read_bytes()).hexdigest()
        return f"{digest}  go{toolchain(minor_of(self.version)).version}\n"

    def keep_digest(self, program: Path) -> None:
        """Take note of the program that was recorded just now."""
        self._digest.write_text(self.digest(program))

    def require_recorded(self, program: Path) -> None:
        """Fail unless it is the program that was recorded."""
        assert self.digest(program) == self._digest.read_text(), _AGAIN.format(name=self.name)

    def save(self, images: Mapping[str, Image]) -> None:
        """Save the images, by state."""
        for state, image in images.items():
            kept = image if state == self.first else replace(image, parts=[])
            kept.save(self._image(state))

    def shown(self, state: str = "") -> Shown:
        """What the kernel showed of the program in a state; by default, it did nothing."""
        state = state or self.first
        if state not in self._shown:
            image = Image.load(self._image(state))
            if state != self.first:
                image = replace(image, parts=Image.load(self._image(self.first)).parts)
            self._shown[state] = image.shown()
        return self._shown[state]

    @contextmanager
    def with_states(self, shown: Mapping[str, Shown]) -> Iterator[None]:
        """Let shown() have these, by state, in place of those that were saved."""
        with mock.patch.dict(self._shown, shown, clear=True):
            yield

    @property
    def first(self) -> str:
        """The name of the first state."""
        return next(iter(self.states))

    def _image(self, state: str) -> Path:
        return DATA / (f"{self.name}.xz" if state == self.first else f"{self.name}.{state}.xz")

    @property
    def _digest(self) -> Path:
        return DATA / f"{self.name}.sha256"


NEWEST: Final = WHEEL_VERSIONS[-1]
OLD: Final = next(each for each in WHEEL_VERSIONS if minor_of(each) == "1.22")
PROGRAM: Final = Program("program", "program", NEWEST, {"idle": ()})
SHOP: Final = Program(
    "shop",
    "shop",
    NEWEST,
    {
        "idle": (),
        "stuck": ("serve 3", "deadlock", "hang", "leak 30", "read 3", "allocate 2000"),
    },
)
OLD_SHOP: Final = Program("oldshop", "shop", OLD, {"idle": ()})
PROGRAMS: Final = (PROGRAM, SHOP, OLD_SHOP)
