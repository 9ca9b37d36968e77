"""The formats of a profile. (For now: pprof.)"""

from dataclasses import dataclass

from ebpfprof.export import pprof
from ebpfprof.profile import Profile


@dataclass(frozen=True, slots=True)
class Format:
    """A format."""

    name: str
    suffix: str
    is_text: bool


FORMATS = {"pprof": Format("pprof", ".pb.gz", False)}


def encode(profile: Profile, name: str, *, hide_idle: bool = False) -> bytes:
    """The profile in a format."""
    return pprof.encode(profile)
