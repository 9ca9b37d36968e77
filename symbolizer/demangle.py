"""Names of C++ and Rust as people write them."""

import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from types import FrameType
from typing import Any, Final

_MAX_NAME_CHARS: Final = 4096
_MAX_CALLS: Final = 20_000  # of functions, for one name: real ones take some hundred
_RUST: Final = re.compile(r"_R[A-Z]|_ZN.*17h[0-9a-f]{16}E")
_RUST_HASH: Final = re.compile(r"::h[0-9a-f]{16}$")


@cache
def demangled(name: str) -> str:
    """The name that a mangled one stands for; any other name as it is.

    C++ by libstdc++'s own demangler (cxxfilt), Rust by rust_demangler, without the hash at the end.
    Names of more than 4,096 characters are left alone.
    """
    if not name.startswith(("_Z", "_R")) or len(name) > _MAX_NAME_CHARS:
        return name
    try:
        if _RUST.match(name):
            import rust_demangler

            return _RUST_HASH.sub("", _bounded(rust_demangler.demangle, name)) or name
        import cxxfilt

        return cxxfilt.demangle(name) or name
    except Exception:  # a library may raise anything of a hostile name, or not find libstdc++
        return name


def _bounded(demangle: Callable[[str], str], name: str) -> str:
    """What a library written in Python makes of a name, unless that takes it too long.

    A name that refers back to parts of itself, which refer back, doubles with each step.
    """
    calls = 0
    before = sys.getprofile()

    def count(frame: FrameType, event: str, argument: Any) -> None:  # noqa: ANN401 - anything
        nonlocal calls
        calls += 1
        if calls > _MAX_CALLS:
            raise RecursionError("the name takes too long")

    sys.setprofile(count)
    try:
        with redirect_stdout(StringIO()):  # rust_demangler prints what it does not understand
            return demangle(name)
    finally:
        sys.setprofile(before)
