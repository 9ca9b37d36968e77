"""A moment of `ebpfprof top` as JSON is as docs/top.schema.json says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema

from ebpfprof.profile.losses import Loss
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.top.json_form import document
from tests.unit.top.moments import SHOP, S, moment, view

SCHEMA = json.loads((Path(__file__).parents[3] / "docs" / "top.schema.json").read_text())


def test_documents_have_rates_errors_and_what_was_hidden() -> None:
    uncertain = replace(SHOP[0], variance=(0.5 * 3 * S) ** 2, count_variance=25.0**2)
    at = moment([uncertain, *SHOP[1:]])
    found = document(view(at), 1.5)
    jsonschema.validate(found, SCHEMA)
    (table,) = found["tables"]
    first, *others = table["rows"]
    assert first["name"] == "main.(*PriceCache).Get"
    assert (first["value_per_s"], first["value_error"]) == (1.5e9, 0.5)
    assert (first["count_per_s"], first["total_count"], first["total_value"]) == (50, 100, 3 * S)
    assert (first["count_error"], others[0]["count_error"]) == (0.25, 0)
    assert len(others) == 2
    (hidden,) = table["hidden"]
    assert (hidden["count_per_s"], hidden["value_per_s"]) == (1.5, 1e9)
    (shown,) = document(view(at, hide_idle=False), 1.5)["tables"]
    assert (len(shown["rows"]), shown["hidden"]) == (4, [])


def test_quantiles_of_lengths_are_those_since_the_start() -> None:
    waits = replace(SHOP[0], lengths=WaitHistogram.of([1_000_000] * 99 + [900_000_000]))
    (table,) = document(view(moment([waits, SHOP[1]])), 1.5)["tables"]
    jsonschema.validate(document(view(moment([waits])), 1.5), SCHEMA)
    first, second = table["rows"]
    assert first["wait_ns"] == {"p50": 1_015_808, "p99": 1_015_808, "max": 905_969_664}
    assert "wait_ns" not in second


def test_losses_and_hostile_names_are_in_it() -> None:
    at = moment(name="\udcff\x1b", losses=[Loss("stacks_full", "stacks that had no room", 12)])
    found = document(view(replace(at, own_cpu=-0.5)), 1.5)
    jsonschema.validate(found, SCHEMA)
    json.dumps(found).encode("ascii")
    assert found["losses"][0]["count"] == 12
    assert found["targets"][0]["name"] == "\\udcff\x1b"
