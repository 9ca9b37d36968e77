"""The last minutes of a process as strips over time, with one cursor."""

from __future__ import annotations

from typing import Any

from selenium.webdriver import Keys

from tests.browser.pages import OVERVIEW, FakedPage
from tests.browser.pageserver import MOMENTS, START_S, point
from tests.browser.test_everyone import faults, shown_at
from tests.browser.test_findings import PHONE, width

AXIS = "#strips [role=slider]"
CPU = "#strips [data-strip=cpu] li"
REQUESTS = "#strips [data-strip=requests] li"
PLACES = ("cpu", "goroutines")
MEMORY = "#strips [data-strip=memory] li"


def later(number: int, used: float) -> dict[str, Any]:
    cpu = {"used": used, "throttled": None, "quota": None, "gomaxprocs": 8}
    return point(number, cpu=cpu, goroutines=None, collections=None)


def numbers(page: FakedPage, script: str, *arguments: object) -> Any:  # noqa: ANN401 - what the script returns
    return page.browser.execute_script(f"return {script}", *arguments)


def test_a_cursor_shows_the_values_of_a_moment_on_a_phone(page: FakedPage) -> None:
    page.server.points[-2] = later(MOMENTS - 2, 2.5)
    last_s = page.server.points[-1]["time_s"]
    page.server.requests = [{"start_s": last_s - 10, "end_s": last_s - 1, "per_second": 1234.5}]
    with shown_at(page.browser, PHONE, "dark"):
        page.open(OVERVIEW)
        page.until(lambda p: bool(p.texts(CPU)), "values")
        assert faults(page.browser) == []
        assert width(page.browser) <= PHONE
        assert page.texts("#strips .strip:not([hidden]) h3") == [
            "Goroutines",
            "Requests",
            "CPU",
            "Memory",
            "Garbage collections",
        ]
        assert page.texts(CPU) == [
            *("0.50 CPUs used", "25.0 % of the time throttled", "0.75 CPUs quota", "8 GOMAXPROCS"),
        ]
        assert page.texts(REQUESTS) == []  # the window that the last moment is in has not ended
        assert page.texts(MEMORY)[0] == "129 MiB heap"
        assert page.texts("#strips [data-strip=goroutines] li")[:2] == [
            *("3 runnable", "6 in system calls"),  # none runs
        ]
        axis = page.one(AXIS)
        axis.send_keys(Keys.ARROW_LEFT)
        assert page.texts(CPU) == ["2.50 CPUs used", "8 GOMAXPROCS"]
        assert page.texts(REQUESTS) == ["1,200 a second or more (HTTP/1)"]
        assert page.texts(MEMORY)[0] == "128 MiB heap"
        assert "CPU: 2.50 CPUs used, 8 GOMAXPROCS." in page.attribute(AXIS, "aria-valuetext")
        assert page.one(".strip-cursor").is_displayed()
        # A new moment leaves the cursor where it is; Escape shows the new one.
        page.server.points.append(later(MOMENTS, 7.0))
        page.browser.execute_script("page.refresh(true)")
        page.until(lambda p: int(p.attribute(AXIS, "aria-valuemax")) == MOMENTS, "a new moment")
        assert page.texts(CPU) == ["2.50 CPUs used", "8 GOMAXPROCS"]
        axis.send_keys(Keys.ESCAPE)
        assert page.texts(CPU) == ["7.00 CPUs used", "8 GOMAXPROCS"]
    asked = [path for path in page.server.asked if "/series?" in path]
    assert asked[0].endswith("/series?after=0")
    assert asked[-1].endswith(f"after={START_S + 2 * (MOMENTS - 1)}")


def test_what_is_drawn_is_what_was_sampled(page: FakedPage) -> None:
    page.open(OVERVIEW)
    page.until(lambda p: bool(p.texts(CPU)), "values")
    points = [later(0, 1.0), later(1, 2.0), later(2, 0.5), later(5, 1.0)]
    points[0]["seconds"] = points[3]["seconds"] = None
    assert numbers(page, "StripNumbers.pieces(arguments[0])", points) == [[0, 1, 2], [3]]
    assert numbers(page, "StripNumbers.range(arguments[0])", points) == [START_S - 50, START_S + 10]
    cpu, goroutines = (f"STRIPS.find(({{name}}) => name === '{name}')" for name in PLACES)
    # GOMAXPROCS is far above what is used: it would flatten the strip.
    assert numbers(page, f"StripNumbers.most({cpu}, arguments[0])", points) == 2
    near = [one | {"cpu": one["cpu"] | {"gomaxprocs": 4}} for one in points]
    assert numbers(page, f"StripNumbers.most({cpu}, arguments[0])", near) == 4
    stacked = numbers(page, f"StripNumbers.stacked({goroutines}, arguments[0])", [point(0)])
    assert [area[0] for area in stacked[:4]] == [[0, 0], [0, 3], [3, 9], [9, 18]]
    unknown = numbers(page, f"StripNumbers.stacked({goroutines}, arguments[0])", points)
    assert unknown[0] == [None] * 4
    ticks = numbers(page, "StripNumbers.ticks([arguments[0], arguments[0] + 600], 6)", START_S)
    assert [tick % 120 for tick in ticks] == [0] * 5
    # Areas of a piece are one path; the moment after the gap is another.
    page.server.points = points
    page.open(OVERVIEW)
    page.until(lambda p: p.texts(CPU) == ["1.00 CPUs used", "8 GOMAXPROCS"], "the last one")
    area = page.attribute("[data-strip=cpu] .strip-plot .strip-area", "d")
    assert area.count("M") == 2
    assert page.texts("#strips .strip:not([hidden]) h3") == [
        "CPU",
        "Memory",
    ]  # nothing else is known
