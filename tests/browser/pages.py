"""The page in a browser, as a user sees it."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.pageserver import PageServer

DEADLINE_S = 60
OVERVIEW = "#pid=1234"
"""What is wrong with the process, and its last minutes; no profile."""


class Page:
    """What a user sees of the page at `url`."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self.browser = browser
        self.url = url

    def open(self, fragment: str = "") -> Page:
        if self.browser.current_url != "about:blank":
            self.browser.get("about:blank")  # or only the fragment would change
        self.browser.get(self.url + fragment)
        return self

    def one(self, css: str) -> WebElement:
        return self.browser.find_element(By.CSS_SELECTOR, css)

    def texts(self, css: str) -> list[str]:
        """The texts, all taken at once: the page may replace them meanwhile.

        Of an element that is hidden as a whole, it is the text that would be visible.
        """
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)"
        return [str(text) for text in self.browser.execute_script(script, css)]

    def text(self, css: str) -> str:
        return "\n".join(self.texts(css))

    def until(self, is_so: Callable[[Page], bool], what: str) -> None:
        WebDriverWait(self.browser, DEADLINE_S, 0.05).until(lambda _: is_so(self), what)

    def until_text(self, css: str, wanted: str) -> None:
        self.until(lambda page: wanted in page.text(css), f"{wanted!r} in {css}")

    def options(self, css: str) -> list[str]:
        """The values of the options of a list."""
        script = "return [...document.querySelector(arguments[0])].map((e) => e.value)"
        return [str(value) for value in self.browser.execute_script(script, css)]

    def functions(self) -> list[str]:
        return self.texts("#functions .function")

    def click(self, css: str) -> None:
        """Click on what is there then: the page may replace it meanwhile."""

        def clicked(_: Chrome) -> bool:
            self.one(css).click()
            return True

        waiting = WebDriverWait(self.browser, DEADLINE_S, 0.05, [StaleElementReferenceException])
        waiting.until(clicked, css)

    def attribute(self, css: str, name: str) -> str:
        """An attribute of the first such element, found and read at once."""
        script = "return document.querySelector(arguments[0]).getAttribute(arguments[1])"
        return str(self.browser.execute_script(script, css, name))

    def fragment(self) -> dict[str, str]:
        words = parse_qs(urlsplit(self.browser.current_url).fragment)
        return {key: values[0] for key, values in words.items()}

    def graph(self, expression: str) -> object:
        return self.browser.execute_script(f"return page.view.graph.{expression}")


class FakedPage(Page):
    """The page of made-up processes."""

    def __init__(self, browser: Chrome, url: str, server: PageServer) -> None:
        super().__init__(browser, url)
        self.server = server

    def open(self, fragment: str = "#kind=block") -> Page:
        return super().open(fragment)


def forget_errors(page: FakedPage) -> None:
    """The browser itself notes answers that are errors."""
    page.browser.get_log("browser")  # type: ignore[no-untyped-call]  # selenium has no types
