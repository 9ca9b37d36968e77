"""Code of a user's own that Python loads unless it starts isolated: each file leaves a mark."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

# What Python looks for by itself, what we import, ours, and what all of them import.
MODULES = (
    *("usercustomize", "sitecustomize", "bcc", "click", "numpy", "ebpfprof", "symbolizer"),
    *("os", "re"),
)


@dataclass(frozen=True)
class Strangers:
    """A home with user site-packages, a folder of modules, and where their marks would be."""

    folder: Path

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def modules(self) -> Path:
        return self.folder / "modules"

    @property
    def environment(self) -> dict[str, str]:
        """In which Python loads them."""
        return {"HOME": str(self.home), "PYTHONPATH": str(self.modules)}

    def marks(self) -> list[str]:
        """The modules that were loaded."""
        return sorted(path.name for path in (self.folder / "marks").iterdir())


def strangers(folder: Path) -> Strangers:
    """Make them below `folder`."""
    made = Strangers(folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = made.home / ".local" / "lib" / version / "site-packages"
    for where in (packages, made.modules, folder / "marks"):
        where.mkdir(parents=True)
    for place, where in (("home", packages), ("path", made.modules)):
        for name in MODULES:
            (where / f"{name}.py").write_text(_leaving(folder / "marks" / f"{place}.{name}"))
    (packages / "some.pth").write_text(f"import os; {_leaving(folder / 'marks' / 'home.pth')}")
    return made


def _leaving(mark: Path) -> str:
    return f"open({str(mark)!r}, 'w').close()\n"
