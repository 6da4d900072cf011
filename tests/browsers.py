"""Chromium without a window, for tests; they are skipped, and say so, where there is none. What is needed of it is
imported from here, behind the check that it is there."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("selenium", reason='needs Selenium: pip install -e ".[browser]"')
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Chromium and its driver (Debian: chromium, chromium-driver)"
)

from selenium import webdriver  # noqa: E402
from selenium.common.exceptions import StaleElementReferenceException as StaleElementReferenceException  # noqa: E402
from selenium.webdriver import ActionChains as ActionChains  # noqa: E402
from selenium.webdriver.common.by import By as By  # noqa: E402
from selenium.webdriver.common.keys import Keys as Keys  # noqa: E402
from selenium.webdriver.support.ui import Select as Select  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait as WebDriverWait  # noqa: E402

Browser = Any  # Selenium's driver, which may not be installed
DESKTOP, PHONE = (1280, 900), (390, 844)


@contextmanager
def a_chromium() -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def be(browser: Browser, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
    """Have a screen of this size, and a user who likes it light or dark; a phone is touched."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": size == PHONE})
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
