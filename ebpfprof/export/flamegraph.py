"""A profile as one HTML file with a flame graph and other views; it needs no network.

It shares its scripts and styles with the page of `serve` (ebpfprof/web).

standalone.js reads the JSON of the profile from #profile, that of a base to compare with from
#base, and what stands out, with the locks, from #summary. If <main id="app"> has the attribute
data-hide-idle, it hides idle waits at first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ebpfprof.export.html_page import html_page
from ebpfprof.export.json_profile import document
from ebpfprof.export.kinds import title
from ebpfprof.export.tables.finding import finding
from ebpfprof.export.tables.operations import operation_sums
from ebpfprof.profile.evidence import are_releases_known
from ebpfprof.profile.model import Lock, Profile, Sample

_SCRIPTS = (
    "vendor/dagre.min.js",
    "elements.js",
    "units.js",
    "flametext.js",
    "flametree.js",
    "flamecanvas.js",
    "flamelegend.js",
    "flamegraph.js",
    "sandwich.js",
    "wakers.js",
    "callgraph.js",
    "sourceview.js",
    "operations.js",
    "tables.js",
    "heatcells.js",
    "handlers.js",
    "heatmap.js",
    "viewstate.js",
    "profileview.js",
    "theme.js",
    "standalone.js",
)
_STYLES = ("flamegraph.css", "style.css", "profileview.css", "heatmap.css")


def encode(
    profile: Profile,
    *,
    index: int = -1,
    base: Profile | None = None,
    hide_idle: bool = False,
    sources: Mapping[str, Any] | None = None,
    locks: Sequence[Lock] = (),
) -> bytes:
    """The profile as a page with a flame graph; with `base`, the change from `base` to it.

    `index` selects the sample type to show first. With `hide_idle` the page hides idle waits at
    first; the user can show them again. `sources` are the texts of files, by the paths that the
    profile names (sourceview.js says how). `locks` are those of the profile, where they were
    recorded: the page has a table of them.
    """
    data: dict[str, Any] = {"profile": document(profile, default=index)}
    if not base:
        listed = [_lock(lock) for lock in locks] if locks else None
        data["summary"] = {"sentence": finding(profile, locks), "locks": listed}
    if base:
        data["base"] = document(base, default=index)
    if sources:
        data["sources"] = dict(sources)
    return html_page(
        title(profile),
        scripts=_SCRIPTS,
        styles=_STYLES,
        data=data,
        attributes="data-hide-idle" if hide_idle else "",
    )


def _lock(lock: Lock) -> dict[str, Any]:
    """A lock as operations.js reads it: sums in nanoseconds, and the places, most delay first."""
    where = f"{lock.type or 'semaphore'} at {lock.address:#x}" if lock.address else ""
    is_known = are_releases_known(lock.releases)
    both = f" ({where})" if lock.name and where else ""
    return {
        "name": f"{lock.name or where}{both}",
        "value": lock.delay_ns,
        "count": lock.contentions if is_known else None,
        "held_ns": lock.held_ns / lock.holds if lock.holds and is_known else None,
        "places": [
            *_places("released by", lock.releases if is_known else ()),
            *_places("waited for by", lock.waits),
            *_places("still waited for by", lock.still_waiting),
        ],
    }


def _places(verb: str, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    return [
        {
            "verb": verb,
            "value": row.value,
            "count": row.count,
            "operation": row.operation,
            "function": row.function,
            "file": row.file,
            "line": row.line,
        }
        for row in operation_sums(samples)
        if row.is_ranked
    ]
