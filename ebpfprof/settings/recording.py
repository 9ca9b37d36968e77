"""The recording settings that the command line and the agent share.

Those of single kinds of profile are declared with the kind (ProfileKind.options).
"""

from __future__ import annotations

from typing import Final

from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import NumberValue, SwitchValue, TextValue

MAX_OVERHEAD: Final = Setting(
    "max_overhead",
    NumberValue(0, 100, is_fraction=True),
    1,
    "Allowed overhead, in percent of the program's CPU time. If recording every wait costs more, "
    "ebpfprof records one wait in eight, all the time or in short windows. 0: record every wait.",
    flags="--max-overhead",
    metavar="PERCENT",
    is_live=False,
)
BY_HANDLER: Final = Setting(
    "by_handler",
    SwitchValue(),
    False,
    "Add the label handler to each sample: the function of the program that net/http, gRPC, "
    "another router or a consumer of a queue called. Also show the time of each handler, and what "
    "it consists of.",
    flags="--by-handler",
    is_live=False,
)
ALLOW_UNKNOWN_GO: Final = Setting(
    "allow_unknown_go",
    SwitchValue(),
    False,
    "Also read programs of an unknown Go version, with the layout of the nearest known one.",
    flags="--allow-unknown-go",
    is_live=False,
)
RUNTIME: Final = Setting(
    "runtime",
    TextValue(),
    None,
    "Read the Go runtime in FILE, a library that the process has mapped, by its name or path. "
    "Needed if it has several.",
    flags="--runtime",
    metavar="FILE",
    is_live=False,
)
