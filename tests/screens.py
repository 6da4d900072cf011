"""What a person sees and does in the studio, by a real browser. With NEWKINDS_SCREENSHOTS=FOLDER pictures are kept."""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from browsers import DESKTOP, ActionChains, Browser, By, StaleElementReferenceException, WebDriverWait, be
from newkinds.data import load_table
from newkinds.discovery.categories import Discovery
from windows import Served, draw_run

CREATURES = {"name": "creatures", "categories": 16, "per_category": 30, "seed": 3}
COLOURS = 220  # of a picture that is kept: small files
WAIT = 20  # s, on a machine that does other things as well


def creatures_run(folder: Path) -> Path:
    """A run of drawn creatures: 8 known kinds and 8 new ones, a few images wrongly assigned."""
    table = load_table(CREATURES)
    truth = [str(name) for name in table.truth or []]
    order = [*table.known, *dict.fromkeys(name for name in truth if name not in table.known)]
    return draw_run(folder, CREATURES, list(map(order.index, truth)), 8)


@contextmanager
def watched(browser: Browser, run: Path, *expected: str) -> Iterator["Screen"]:
    """The studio of a run, opened; the browser may log nothing meanwhile but what is expected of a server that ends."""
    screen = Screen(browser, run)
    yield screen
    screen.served.end()
    logged = [entry["message"] for entry in browser.get_log("browser")]
    browser.get("about:blank")
    allowed = ("net::ERR_", "Failed to fetch", *expected)
    assert [message for message in logged if not any(why in message for why in allowed)] == []


class Screen:
    """What a person sees and does."""

    def __init__(self, browser: Browser, run: Path, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> None:
        self.browser, self.run = browser, run
        be(browser, size, scheme)
        browser.get("about:blank")
        self.served = Served(run)
        self.open()

    def open(self) -> None:
        self.browser.get(self.served.address)
        self.until(lambda: self.all(".card, #main .hint"))
        assert "token" not in self.browser.current_url

    def until(self, seen: Callable[[], Any], why: str = "") -> Any:
        """Wait until something is seen."""

        def look(_: Browser) -> Any:
            try:
                return seen()
            except StaleElementReferenceException:
                return None

        return WebDriverWait(self.browser, WAIT, 0.05).until(look, why)

    def all(self, selector: str) -> list[Any]:
        """What is shown now; the page may be drawing it again while we look."""

        def shown() -> list[list[Any]]:
            found = self.browser.find_elements(By.CSS_SELECTOR, selector)
            return [[element for element in found if element.is_displayed()]]

        return self.until(shown)[0]

    def text(self, selector: str) -> str:
        script = "return document.querySelector(arguments[0])?.innerText ?? ''"
        return str(self.browser.execute_script(script, selector))

    def click(self, selector: str) -> None:
        def act() -> bool:
            found = self.all(selector)
            if found:
                found[0].click()
            return bool(found)

        self.until(act, selector)

    def button(self, label: str, inside: str = "body") -> None:
        def act() -> bool:
            for element in self.all(f"{inside} button"):
                if element.text.startswith(label):
                    element.click()
                    return True
            return False

        self.until(act, label)

    def press(self, *keys: str) -> None:
        """One key after another, wherever the focus is."""
        for key in keys:
            ActionChains(self.browser).send_keys(key).perform()

    def go(self, address: str) -> None:
        self.browser.execute_script("location.hash = arguments[0]", address)

    def names(self) -> list[str]:
        return [element.text for element in self.all(".card .title bdi")]

    def tiles(self) -> list[str]:
        """The paths of the images shown."""
        script = """
            const tiles = [...document.querySelectorAll(".tile")];
            return tiles.sort((a, b) => a.dataset.index - b.dataset.index).map((tile) => tile.title)"""
        return list(self.browser.execute_script(script))

    def said(self, text: str) -> None:
        self.until(lambda: text in self.text("#toasts"), text)

    def found(self) -> Discovery:
        return Discovery.read(self.run)

    def picture(self, name: str) -> None:
        """Keep a picture of the screen, if that is wanted."""
        folder = os.environ.get("NEWKINDS_SCREENSHOTS")
        if not folder:
            return
        loaded = """
            const inside = (box) => box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
            const seen = [...document.images].filter((image) => inside(image.getBoundingClientRect()));
            return seen.every((image) => image.complete && image.naturalWidth)"""
        self.until(lambda: self.browser.execute_script(loaded))
        Path(folder).mkdir(parents=True, exist_ok=True)
        with Image.open(io.BytesIO(self.browser.get_screenshot_as_png())) as shot:
            few = shot.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            few.save(Path(folder) / f"studio-{name}.png", optimize=True)
