"""The page in a real browser: light, dark, on a phone, by keyboard alone, without script, and with hostile names.

If the variable NEWKINDS_SCREENSHOTS names a folder, report.png is kept there."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browsers import (
    DESKTOP,
    PHONE,
    ActionChains,
    Browser,
    By,
    Keys,
    Select,
    WebDriverWait,
    a_chromium,
    be,
    needs_chromium,
)
from newkinds.discovery.categories import Discovery
from newkinds.discovery.report import render
from newkinds.discovery.report.build import page_of
from newkinds.runs.directory import RunDirectory
from pages import HOSTILE, a_page
from pictured import drawn

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with a_chromium() as browser:
        yield browser


@pytest.fixture
def opened(chromium: Browser, tmp_path: Path) -> Iterator[Callable[..., Browser]]:
    """`opened(html, size, scheme, script)`: the page as that reader sees it; nothing may be logged meanwhile."""

    def open_page(
        html: str | None = None, size: tuple[int, int] = DESKTOP, scheme: str = "light", script: bool = True
    ) -> Browser:
        file = tmp_path / "report.html"
        file.write_text(render(a_page()) if html is None else html, encoding="utf-8")
        be(chromium, size, scheme)
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
        chromium.get(file.as_uri())
        return chromium

    yield open_page
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert chromium.get_log("browser") == [], "no error, and nothing that the page's policy forbids"


def visible(browser: Browser, selector: str) -> list[Any]:
    return [element for element in browser.find_elements(By.CSS_SELECTOR, selector) if element.is_displayed()]


def click(browser: Browser, selector: str) -> None:
    """Scroll to an element, then click it: what comes into view is laid out only then, and may move."""
    element = browser.find_element(By.CSS_SELECTOR, selector)
    for _ in range(3):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    element.click()


def names_shown(browser: Browser) -> list[str]:
    return [heading.text for heading in visible(browser, ".category h3")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nothing_is_wider_than_the_screen_and_every_picture_is_drawn(
    opened: Callable[..., Browser], size: tuple[int, int], scheme: str
) -> None:
    browser = opened(size=size, scheme=scheme)
    width, room = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width <= room == size[0]
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(json.loads(ground.replace("rgb(", "[").replace(")", "]"))) < 384) == (scheme == "dark")
    assert len(visible(browser, ".category .two i")) == 3 * 6
    for tile in visible(browser, ".category .two i"):
        style = "const s = getComputedStyle(arguments[0]); return [s.backgroundImage.slice(0, 20), s.boxShadow]"
        image, edge = browser.execute_script(style, tile)
        assert image.startswith('url("data:image/jpeg')
        assert edge != "none", "a white image has an edge"
    cut = browser.execute_script("""
        return [...document.querySelectorAll("table")].filter((table) => {
          const scroller = table.closest(".scroller");
          return table.scrollWidth > innerWidth && !scroller;
        }).length""")
    assert cut == 0


def test_every_category_opens_all_its_images_without_script(opened: Callable[..., Browser]) -> None:
    browser = opened(script=False)
    assert visible(browser, "#tools, #viewer") == []
    assert names_shown(browser) == ["heron", "crane", "otter"]
    assert visible(browser, "#new-1 .others i") == []
    click(browser, "#new-1 summary")
    assert len(visible(browser, "#new-1 .others i")) == 2
    for section in ("pairs", "labels", "unlike", "check", "reliability", "count", "plan", "skipped", "made"):
        assert visible(browser, f"#{section}"), section


def test_search_filter_and_sort(opened: Callable[..., Browser]) -> None:
    browser = opened()
    find = browser.find_element(By.ID, "find")
    find.send_keys("OTTER/4")
    assert names_shown(browser) == ["otter"]
    assert "1 of 3 categories, 1 image" in browser.find_element(By.ID, "found").text
    assert len(visible(browser, "i.hit")) == 1, "its images are opened to show it"
    find.send_keys(" of nothing")
    assert names_shown(browser) == []
    find.clear()
    find.send_keys(Keys.SPACE, Keys.BACKSPACE)
    assert names_shown(browser) == ["heron", "crane", "otter"]
    for show, names in (("new", ["heron", "crane"]), ("known", ["otter"]), ("mixed", ["heron"])):
        click(browser, f".chip:has([value={show}])")
        assert names_shown(browser) == names
    assert not browser.find_element(By.CSS_SELECTOR, "[value=small]").is_enabled(), "there is none"
    click(browser, ".chip:has([value=all])")
    for order, first in (
        ("name", "crane"),
        ("size", "crane"),
        ("small", "heron"),
        ("unsure", "crane"),
        ("sure", "heron"),
    ):
        Select(browser.find_element(By.ID, "sort")).select_by_value(order)
        assert names_shown(browser)[0] == first, order


def test_a_link_to_a_category_that_is_filtered_out_shows_it(opened: Callable[..., Browser]) -> None:
    browser = opened()
    click(browser, "[data-show=mixed]")
    assert names_shown(browser) == ["heron"]
    click(browser, "nav a[href='#known-1']")
    WebDriverWait(browser, 10).until(lambda _: "otter" in names_shown(browser))


def test_pictures_are_enlarged_by_keyboard_alone(opened: Callable[..., Browser]) -> None:
    browser = opened()
    focused = "const e = document.activeElement; return e.className === 'skip' ? 'skip' : e.title || e.id || e.tagName"

    def press(*keys: str) -> str:
        browser.switch_to.active_element.send_keys(*keys)
        return browser.execute_script(focused)

    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert browser.execute_script(focused) == "skip"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    browser.execute_script("document.querySelector('#new-1 summary').focus()")
    assert press(Keys.SHIFT, Keys.TAB) == "heron/5.png", "one stop for each row of pictures"
    assert browser.execute_script(outline) == "solid"
    assert press(Keys.ARROW_RIGHT) == "heron/6.png"
    press(Keys.ENTER)
    viewer = browser.find_element(By.ID, "viewer")
    assert viewer.is_displayed()
    assert browser.find_element(By.ID, "viewer-path").text == "heron/6.png"
    assert browser.find_element(By.ID, "viewer-note").text == "heron · 39 %"
    press(Keys.ARROW_LEFT)
    assert browser.find_element(By.ID, "viewer-path").text == "heron/5.png"
    assert "s0" in browser.find_element(By.ID, "viewer-image").get_attribute("class")
    press(Keys.ESCAPE)
    assert not viewer.is_displayed()
    WebDriverWait(browser, 10).until(lambda _: browser.execute_script(focused) == "heron/5.png", "back to the picture")


def test_a_click_enlarges_and_a_click_beside_closes(opened: Callable[..., Browser]) -> None:
    browser = opened(size=PHONE)
    click(browser, "#known-1 i")
    viewer = browser.find_element(By.ID, "viewer")
    assert browser.find_element(By.ID, "viewer-path").text == "otter/0.png"
    assert viewer.rect["width"] <= PHONE[0]
    ActionChains(browser).move_by_offset(3, 3).click().perform()
    assert not viewer.is_displayed()


def test_hostile_names_do_nothing_but_look_strange(opened: Callable[..., Browser]) -> None:
    names = HOSTILE[:10]
    browser = opened(render(a_page(names)), size=PHONE)
    assert len(browser.find_elements(By.CSS_SELECTOR, "article.category")) == len(names)
    assert browser.execute_script("return document.scripts.length") == 1
    assert browser.execute_script("return document.querySelectorAll('img[src=x]').length") == 0
    assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]
    click(browser, "#new-1 i")
    assert browser.find_element(By.ID, "viewer-path").text == names[0]
    long = opened(render(a_page(["x" * 300, "long " * 2000])), size=PHONE)
    assert long.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]
    assert long.find_element(By.ID, "new-1").size["height"] < 1500, "a long name does not bury the pictures"


@pytest.fixture(scope="module")
def corrected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run that people have corrected in all ways."""
    run = drawn(tmp_path_factory.mktemp("corrected"), {"heron": 16, "otter": 20, "crane": 14}, new=6, per_category=14)
    found = Discovery.read(run)
    members = {name: [m.path for m in found.members if m.category == name] for name in ("new-1", "new-4", "new-6")}
    found.rename("new-1", "shiba inu")
    found.rename("new-2", "<b>corgi</b>")
    found.merge(["<b>corgi</b>", "new-3"], into="new-3")
    found.split("new-5", 2)
    found.move(members["new-4"][:3], "otter")
    found.accept(category="crane")
    found.junk(members["new-6"][:2])
    found.rename("new-4", "undone")
    found.undo()
    return render(page_of(RunDirectory(run)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_what_was_corrected_can_be_seen_and_found(
    opened: Callable[..., Browser], corrected: str, size: tuple[int, int], scheme: str
) -> None:
    browser = opened(corrected, size, scheme)
    if (folder := os.environ.get("NEWKINDS_SCREENSHOTS")) and (size, scheme) == (DESKTOP, "light"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "report.png").write_bytes(browser.get_screenshot_as_png())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0]
    assert {"shiba inu", "new-3", "new-5-2"} < set(names_shown(browser))
    mark = "return getComputedStyle(arguments[0], '::after').content"
    for status, sign, count in (("moved", "→", 3), ("accepted", "✓", 14)):
        tiles = browser.find_elements(By.CSS_SELECTOR, f".category i.{status}")
        assert len(tiles) == count
        assert sign in browser.execute_script(mark, tiles[0])
    click(browser, ".masthead a[href='#by-hand']")
    section = browser.find_element(By.ID, "by-hand")
    assert abs(browser.execute_script("return arguments[0].getBoundingClientRect().top", section)) < size[1]
    assert "merged '<b>corgi</b>' into 'new-3'" in section.text
    assert "7 corrections are in force: 3 images moved, 14 images accepted, 2 images junk." in section.text
    struck = section.find_elements(By.TAG_NAME, "del")
    assert [line.text for line in struck] == ["renamed 'new-4' to 'undone'"]
    junk = section.find_elements(By.CSS_SELECTOR, ".cards i")
    assert len(junk) == 2
    click(browser, "#by-hand .cards i")
    assert "junk by hand" in browser.find_element(By.ID, "viewer-note").text


def test_a_moved_image_says_so_when_it_is_enlarged_and_ids_can_be_searched(
    opened: Callable[..., Browser], corrected: str
) -> None:
    browser = opened(corrected)
    click(browser, ".category i.moved")
    assert browser.find_element(By.ID, "viewer-note").text == "otter · moved by hand"
    browser.find_element(By.ID, "viewer-close").click()
    find = browser.find_element(By.ID, "find")
    find.send_keys("#9")  # the part that was split off
    assert names_shown(browser) == ["new-5-2"]
