"""A moment of `ebpfprof top` as JSON, for scripts. docs/top.schema.json describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ebpfprof.console.text import well_formed
from ebpfprof.profile.wait_histogram import QUANTILES
from ebpfprof.top.rows import Shown, TopRow
from ebpfprof.top.state import TopView
from ebpfprof.top.views import View, view_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from ebpfprof.profile.wait_histogram import Quantile

FORMAT = "ebpfprof-top-1"


def document(view: TopView, time_s: float) -> dict[str, Any]:
    """All tables of the moment. `time_s` is when that was, in seconds of Unix time."""
    moment = view.moment
    return {
        "format": FORMAT,
        "time_s": time_s,
        "recorded_s": moment.uptime_ns / 1e9,
        "targets": [
            {
                "pid": target.pid,
                "name": well_formed(target.name),
                "go_version": well_formed(target.go_version),
                "ending": well_formed(target.ending),
            }
            for target in moment.targets
        ],
        "overhead_share": moment.overhead_share,
        "recorded_share": moment.recorded_share,
        "own_cpus": max(moment.own_cpu, 0.0),
        "losses": [
            {"name": loss.name, "count": loss.count, "text": str(loss)} for loss in moment.losses
        ],
        "notes": [well_formed(note) for note in moment.notes],
        "tables": [_table(view, name) for name in view.views if name in moment.readings],
    }


def _table(view: TopView, name: str) -> dict[str, Any]:
    of_view = view_named(name)
    reading = view.moment.readings[name]
    shown = view.shown_of(reading)
    return {
        "name": name,
        "kind": of_view.kind.name,
        "rows_are": of_view.rows,
        "is_moment": of_view.kind.is_moment,
        "unit": of_view.kind.unit,
        "window_s": reading.window_ns / 1e9,
        "rows": [_row(row, of_view) for row in shown.rows],
        "hidden": _hidden(shown),
    }


def _row(row: TopRow, view: View) -> dict[str, Any]:
    key = row.key
    has_count = not row.is_unknown and (row.count or row.value <= 0)
    fields = {
        "pid": key.pid,
        "operation": well_formed(key.operation),
        "name": well_formed(key.name),
        "file": well_formed(key.file),
        "line": key.line,
        "idle": key.idle.name if key.idle else None,
        "value_per_s": row.rate * 1e9,
        "value_error": row.error,
        "count_per_s": row.count_per_s if has_count else None,
        "count_error": row.count_error,
        "total_value": row.total_value,
        "total_error": row.total_error,
        "total_count": None if row.is_unknown else row.total_count,
        "is_ranked": row.is_ranked,
    }
    if row.lengths:
        fields["wait_ns"] = _numbers(row.quantile)
    if row.hold_lengths:
        fields["hold_ns"] = _numbers(row.hold_quantile)
    if key.waker:
        fields["woken_by"] = well_formed(key.waker)
    if view.rows == "locks":
        fields |= {"address": key.address, "held_ns": None if row.is_unknown else row.held_ns}
    if view.rows == "functions":
        fields |= {
            "with_callees_per_s": row.callees_rate * 1e9,
            "total_with_callees": row.total_callees,
        }
    return fields


def _numbers(quantile: Callable[[str], Quantile | None]) -> dict[str, float | None]:
    both = {name: quantile(name) for name in QUANTILES}
    return {name: known.ns if known else None for name, known in both.items()}


def _hidden(shown: Shown) -> list[dict[str, Any]]:
    return [
        {
            "idle": rate.rule.name,
            "reason": rate.rule.reason,
            "count_per_s": rate.count_per_s,
            "value_per_s": rate.rate * 1e9,
        }
        for rate in shown.hidden
    ]
