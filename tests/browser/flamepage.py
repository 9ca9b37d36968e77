"""A flame graph in one HTML file, opened in a browser and used as a person would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.interaction import POINTER_TOUCH
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

DEADLINE_S = 60
# Until what a script or an event changed is on the screen.
_DRAWN = """
const done = arguments[0];
requestAnimationFrame(() => requestAnimationFrame(() => done(true)));
"""
_TEXTS = """
return [...document.querySelectorAll(arguments[0])]
  .filter((e) => e.checkVisibility()).map((e) => e.innerText.trim());
"""
# A place inside a frame but left of its name, as the window sees it.
_PLACE = """
const { graph } = standalonePage;
const { x, depth } = graph.frames().find((frame) => frame.node === arguments[0]);
const top = graph.drawing.top(depth);
const box = graph.scroller.getBoundingClientRect();
return [box.left + x + 2, box.top + top - graph.scroller.scrollTop + 3];
"""
_PIXEL = """
const { canvas } = standalonePage.graph;
const box = canvas.getBoundingClientRect();
const ratio = canvas.width / box.width;
const [x, y] = [(arguments[0] - box.left) * ratio, (arguments[1] - box.top) * ratio];
const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
copy.drawImage(canvas, x, y, 1, 1, 0, 0, 1, 1);
return [...copy.getImageData(0, 0, 1, 1).data];
"""


class FlamePage:
    """What a user sees of the file at `path` and does with it; `fragment` is of its address."""

    def __init__(self, browser: Chrome, path: Path, fragment: str = "") -> None:
        self.browser = browser
        if browser.current_url != "about:blank":
            browser.get("about:blank")  # or only the fragment would change
        browser.get(path.as_uri() + fragment)
        self.drawn()

    def drawn(self) -> None:
        """Wait until what was changed is drawn."""
        self.browser.execute_async_script(_DRAWN)

    def script(self, code: str, *arguments: object) -> Any:  # noqa: ANN401 - what the script returns
        return self.browser.execute_script(code, *arguments)

    def graph(self, expression: str) -> Any:  # noqa: ANN401 - what the script returns
        return self.script(f"return standalonePage.graph.{expression}")

    def texts(self, css: str) -> list[str]:
        """The texts of what is visible."""
        return [str(text) for text in self.script(_TEXTS, css)]

    def text(self, css: str) -> str:
        return "\n".join(self.texts(css))

    def control(self, label: str) -> WebElement:
        """What stands in the label that begins or ends so."""
        path = f"//label[contains(., '{label}')]//*[self::input or self::select]"
        return self.browser.find_element(By.XPATH, path)

    def choose(self, label: str, choice: str) -> None:
        Select(self.control(label)).select_by_index(self.choices(label).index(choice))
        self.drawn()

    def choices(self, label: str) -> list[str]:
        return [option.text for option in self.control(label).find_elements(By.TAG_NAME, "option")]

    def tick(self, label: str) -> None:
        self.control(label).click()
        self.drawn()

    def search(self, text: str) -> None:
        field = self.control("Search")
        field.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE, text)
        self.until("standalonePage.state.search === arguments[0]", text)

    def until(self, condition: str, *arguments: object) -> None:
        """Wait until a condition, in JavaScript, holds and is drawn."""
        wait = WebDriverWait(self.browser, DEADLINE_S, 0.02)
        wait.until(lambda _: self.script(f"return {condition}", *arguments), condition)
        self.drawn()

    def view(self, name: str) -> None:
        """Show another view."""
        self.browser.find_element(By.XPATH, f"//label[.='{name}']").click()
        self.drawn()

    def elements(self, css: str) -> list[WebElement]:
        return list(self.browser.find_elements(By.CSS_SELECTOR, css))

    def rows(self, css: str) -> list[list[str]]:
        """The texts of the cells of rows."""
        script = (
            "return [...document.querySelectorAll(arguments[0])].map((row) =>"
            " [...row.cells].map((cell) => cell.innerText.trim()))"
        )
        return [[str(text) for text in row] for row in self.script(script, css)]

    def press(self, *keys: str) -> None:
        """Press keys in the flame graph."""
        self.canvas.send_keys(*keys)
        self.drawn()

    @property
    def canvas(self) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, ".flame-canvas")

    @property
    def said(self) -> str:
        """The description of the selected frame, also for a screen reader."""
        return self.text(".flame-live")

    # Frames

    def frames(self) -> list[dict[str, Any]]:
        """All that are drawn, from the root on."""
        return list(self.graph("frames()"))

    def names(self, depth: int) -> list[str]:
        """Those of a row, from the left."""
        return [frame["name"] for frame in self.frames() if frame["depth"] == depth]

    def frame(self, name: str) -> dict[str, Any]:
        """The first of that name."""
        return next(frame for frame in self.frames() if frame["name"] == name)

    def _place(self, name: str) -> tuple[int, int]:
        self.script("document.querySelector('.flamegraph').scrollIntoView()")
        x, y = self.script(_PLACE, self.frame(name)["node"])
        return round(x), round(y)

    def top(self, name: str) -> int:
        return self._place(name)[1]

    def point_at(self, name: str) -> None:
        actions = ActionBuilder(self.browser)
        actions.pointer_action.move_to_location(*self._place(name))  # type: ignore[no-untyped-call]  # selenium has no types
        actions.perform()
        self.drawn()

    def click(self, name: str) -> None:
        self.point_at(name)
        ActionChains(self.browser).click().perform()
        self.drawn()

    def tap(self, name: str) -> None:
        """With a finger."""
        finger = PointerInput(POINTER_TOUCH, "finger")  # type: ignore[no-untyped-call]  # selenium has no types
        actions = ActionBuilder(self.browser, mouse=finger)
        actions.pointer_action.move_to_location(*self._place(name)).pointer_down().pointer_up()  # type: ignore[no-untyped-call]  # selenium has no types
        actions.perform()
        self.drawn()

    def colour(self, name: str) -> tuple[int, int, int]:
        """Red, green and blue of a frame."""
        self.drawn()
        red, green, blue, _ = self.script(_PIXEL, *self._place(name))
        return red, green, blue
