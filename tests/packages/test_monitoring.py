"""The dashboard and the alerts: well formed; test_agent.py asks an agent for their metrics."""

from __future__ import annotations

from tests.packages.monitoring import asked, dashboard, expressions, rules

OF_ROWS = 24  # columns of Grafana's grid


def test_each_panel_says_what_it_shows() -> None:
    panels = [each for each in dashboard()["panels"] if each["type"] != "row"]
    assert len(panels) > 15
    for panel in panels:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]


def test_no_panels_overlap() -> None:
    taken = set[tuple[int, int]]()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= OF_ROWS
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_each_query_can_be_limited_to_a_machine() -> None:
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            selectors = target["expr"].count("{")
            assert target["expr"].count('instance=~"$instance"') == selectors > 0, panel["title"]


def test_each_alert_says_what_is_wrong_and_what_to_do() -> None:
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) > 10
    for alert in alerts:
        assert alert["labels"]["severity"] in ("info", "warning"), alert["alert"]
        assert alert["for"]
        assert alert["annotations"]["summary"].endswith(".")
        assert alert["annotations"]["description"].endswith(".")


def test_they_use_what_the_agent_measures() -> None:
    assert len(list(expressions())) > 30
    assert len(asked()) > 20
