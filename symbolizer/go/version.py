"""Go version strings, parsed and comparable."""

import re
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Self

from symbolizer.errors import UnsupportedGoVersion

_PATTERN = re.compile(
    r"(?P<devel>devel )?go1(?:\.(?P<minor>[0-9]{1,4}))?"
    r"(?:\.(?P<patch>[0-9]{1,4})|(?P<stage>beta|rc)(?P<number>[0-9]{1,4}))?(?!\.?[0-9])"
    r"(?P<suffix>-(?!X:)\S*)?"
)
_EXPERIMENTS = re.compile(r"[ -]X:([A-Za-z0-9,]+)")
_STAGES = {"devel": -3, "beta": -2, "rc": -1}


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class GoVersion:
    """A version of Go 1. `text` is as the toolchain wrote it; order and equality ignore it."""

    minor: int
    patch: int = 0
    stage: str = ""
    """"" for a release, "rc", "beta" or "devel"."""
    text: str = field(default="")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse "go1.27.3", "go1.22rc1", "go1.28-devel_abcdef", "go1.21.5 X:nocoverage".

        Development versions are "devel go1.28-abcdef" before Go 1.25, "go1.28-devel_abcdef" since
        (cmd/dist/build.go, findgoversion), and go1.28-ANYTHING of other toolchains that name no
        patch. Raises UnsupportedGoVersion for anything else.
        """
        match = _PATTERN.match(text)
        if match is None:
            raise UnsupportedGoVersion(
                f"the program names its Go version {text[:64]!r}, which is not a version of Go 1"
            )
        minor = int(match["minor"] or 0)
        suffix = match["suffix"] or ""
        is_released = match["patch"] is not None or match["stage"] is not None or not suffix
        if match["devel"] or suffix.startswith("-devel") or not is_released:
            return cls(minor, stage="devel", text=text)
        return cls(minor, int(match["patch"] or match["number"] or 0), match["stage"] or "", text)

    @property
    def experiments(self) -> tuple[str, ...]:
        """The experiments of GOEXPERIMENT that differ from the toolchain's own, in lower case."""
        match = _EXPERIMENTS.search(self.text)
        return tuple(match[1].lower().split(",")) if match else ()

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, GoVersion) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._key() < other._key() if isinstance(other, GoVersion) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, int, int]:
        return self.minor, _STAGES.get(self.stage, 0), self.patch
