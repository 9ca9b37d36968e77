"""A picture of a flame graph file, as for the tutorial: the file is opened in a browser.

    python -m tests.tools.flamegraph_picture /tmp/shop/slow.html docs/images/tutorial-slow.png

The picture is as high as the page is.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.tools.screenshots import DEADLINE_S, LIGHT, opened

WIDTH = 1000
MARGIN = 16


def main() -> None:
    """Write the picture of the file that is named first to the one that is named second."""
    page, picture = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as profile, opened(profile) as browser:
        metrics = {"width": WIDTH, "height": 400, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", LIGHT)
        browser.get(page.resolve().as_uri())
        WebDriverWait(browser, DEADLINE_S).until(
            lambda b: b.find_elements(By.CSS_SELECTOR, "#functions table")
        )
        height = browser.execute_script("return document.body.getBoundingClientRect().bottom")
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height + MARGIN, "scale": 1}
        shot = browser.execute_cdp_cmd(
            "Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True}
        )
        picture.write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
