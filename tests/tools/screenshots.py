"""Pictures of the page for the docs: the demo service, served and looked at in a browser.

    python -m tests.tools.screenshots [FOLDER]

As root. Of the served page it writes page-light.png, page-dark.png and page-phone.png, the
overview; profile-light.png and profile-dark.png; locks-light.png and locks-dark.png, by lock; of an
HTML file flamegraph.png, flamegraph-dark.png, callgraph.png, heatmap-light.png, heatmap-dark.png.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import text_to_be_present_in_element
from selenium.webdriver.support.ui import WebDriverWait

from tests.browser.chromium import FLAGS
from tests.kernel.programs import program
from tests.targets_run import Target

FOLDER = Path(__file__).parents[2] / "docs" / "images"
RECORDED_S = 75
DEADLINE_S = 30
DARK: dict[str, object] = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
LIGHT: dict[str, object] = {"features": [{"name": "prefers-color-scheme", "value": "light"}]}


def main() -> None:
    """Write the pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    built = program("demo", mode="trimpath")
    with Target.start(built) as demo, tempfile.TemporaryDirectory() as profile:
        # Every wait, so that there are enough releases for the pictures of locks.
        options = ["--continuous", "--lock-labels", "--max-overhead", "0"]
        command = [sys.executable, "-m", "ebpfprof", "serve", "--pid", str(demo.pid), *options]
        server = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"],
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            url = next(word for word in line.split() if word.startswith("http://")).rstrip(";")
            time.sleep(RECORDED_S)  # so that there is something to see
            with opened(profile) as browser:
                take_page(browser, url, folder)
                take_file(browser, recorded(demo.pid, Path(profile)), folder)
        finally:
            server.terminate()
            server.wait()


def recorded(pid: int, folder: Path) -> Path:
    """A flame graph in one file."""
    path = folder / "waits.html"
    command = [sys.executable, "-m", "ebpfprof", "attach", "--pid", str(pid), "--hide-idle"]
    options = ["--profile", "block", "--duration", "30", "-f", "html", "-o", str(path)]
    subprocess.run([*command, *options], check=True)
    return path


def show(browser: webdriver.Chrome, media: dict[str, object], width: int, height: int) -> None:
    """Make the window so large, and light or dark."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})


def take_page(browser: webdriver.Chrome, url: str, folder: Path) -> None:
    """The page of the server."""
    locks = "#kind=mutex&group=label:lock"
    overview, profile = ("#explanation [data-rest]", "OK: "), ("#headline", "Mutex")
    views = (
        ("page-light", LIGHT, 1200, "", overview),
        ("page-dark", DARK, 1200, "", overview),
        ("page-phone", LIGHT, 390, "", overview),
        ("profile-light", LIGHT, 1200, "#kind=block", profile),
        ("profile-dark", DARK, 1200, "#kind=block", profile),
        ("locks-light", LIGHT, 1200, locks, profile),
        ("locks-dark", DARK, 1200, locks, profile),
    )
    for name, media, width, fragment, (filled, said) in views:
        show(browser, media, width, 900)
        browser.get("about:blank")
        browser.get(url + fragment)
        WebDriverWait(browser, DEADLINE_S).until(
            text_to_be_present_in_element((By.CSS_SELECTOR, filled), said)
        )
        browser.save_screenshot(str(folder / f"{name}.png"))


def take_file(browser: webdriver.Chrome, path: Path, folder: Path) -> None:
    """The HTML file, with something searched."""
    for name, media in (("flamegraph", LIGHT), ("flamegraph-dark", DARK)):
        show(browser, media, 1200, 700)
        browser.get("about:blank")
        browser.get(path.as_uri())
        browser.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("PriceCache")
        WebDriverWait(browser, DEADLINE_S).until(
            lambda b: bool(b.find_element(By.TAG_NAME, "output").text)
        )
        browser.save_screenshot(str(folder / f"{name}.png"))
    take_heatmap(browser, path, folder)
    show(browser, LIGHT, 1200, 700)
    browser.get("about:blank")  # or only the fragment would change
    browser.get(f"{path.as_uri()}#view=graph")
    WebDriverWait(browser, DEADLINE_S).until(
        lambda b: bool(b.find_elements(By.CSS_SELECTOR, ".call-box"))
    )
    browser.save_screenshot(str(folder / "callgraph.png"))


def take_heatmap(browser: webdriver.Chrome, path: Path, folder: Path) -> None:
    """The heatmap of the HTML file."""
    for name, media in (("heatmap-light", LIGHT), ("heatmap-dark", DARK)):
        show(browser, media, 1000, 700)
        browser.get("about:blank")
        browser.get(path.as_uri())
        browser.find_element(By.ID, "heat").screenshot(str(folder / f"{name}.png"))


def opened(profile: str) -> webdriver.Chrome:
    """A browser, a context manager, that keeps what it has to keep in the folder `profile`."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


if __name__ == "__main__":
    main()
