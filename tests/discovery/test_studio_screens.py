"""The studio on other screens and of other runs: a phone, in the dark, the map, hostile names, images that have gone,
a dropped image and primitive fields."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from browsers import DESKTOP, PHONE, ActionChains, Browser, By, Keys, needs_chromium
from newkinds.data import load_table
from newkinds.runs.directory import RunDirectory
from screens import Screen
from windows import KNOWN, ODD, strange_run

pytestmark = needs_chromium


@pytest.fixture
def logged(chromium: Browser) -> Iterator[None]:
    """Nothing may be logged by the browser meanwhile, but that a server has ended while it was being asked."""
    yield
    chromium.get("about:blank")
    said = [entry["message"] for entry in chromium.get_log("browser")]
    assert [message for message in said if "net::ERR_" not in message and "Failed to fetch" not in message] == []


def width(screen: Screen) -> int:
    return int(screen.browser.execute_script("return document.documentElement.scrollWidth"))


@pytest.mark.usefixtures("logged")
def test_on_a_phone(chromium: Browser, creatures: Path) -> None:
    screen = Screen(chromium, creatures, PHONE)
    assert width(screen) <= PHONE[0]
    small = """return [...document.querySelectorAll("button, nav a, .chip, select")].filter((e) => e.offsetParent)
        .map((e) => e.getBoundingClientRect()).filter((box) => box.height < 32).length"""
    assert screen.browser.execute_script(small) == 0, "a finger hits it"
    screen.click('.card[data-id="9"]')
    screen.until(lambda: screen.text("h1") == "new-2" and screen.tiles() and screen.all(".near"))
    assert width(screen) <= PHONE[0]
    path = screen.tiles()[0]
    touch(screen, ".tile[data-index='0']", long=True)
    screen.until(lambda: "1 selected" in screen.text(".selection"))
    touch(screen, ".tile[data-index='1']")
    screen.until(lambda: "2 selected" in screen.text(".selection"))
    screen.picture("phone")
    assert width(screen) <= PHONE[0]
    screen.button("Move", ".selection")
    screen.until(lambda: screen.all("dialog.palette li"))
    screen.press("new-1", Keys.ENTER)
    screen.said("Moved 2 images")
    assert next(m for m in screen.found().members if m.path == path).category == "new-1"
    screen.until(lambda: path not in screen.tiles())
    touch(screen, ".tile[data-index='0']")
    screen.until(lambda: screen.all("dialog.viewer .large"))
    assert width(screen) <= PHONE[0]
    screen.served.end()


def touch(screen: Screen, selector: str, long: bool = False) -> None:
    """A finger on the middle of an element."""
    script = """
        const box = document.querySelector(arguments[0]).getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2]"""
    screen.browser.execute_script("document.querySelector(arguments[0]).scrollIntoView({ block: 'center' })", selector)
    x, y = screen.browser.execute_script(script, selector)
    at = {"touchPoints": [{"x": x, "y": y}]}
    screen.browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", **at})
    time.sleep(0.7 if long else 0.05)
    screen.browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@pytest.mark.usefixtures("logged")
def test_in_the_dark(chromium: Browser, creatures: Path) -> None:
    screen = Screen(chromium, creatures, DESKTOP, "dark")
    ground = screen.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in ground.strip("rgb()").split(",")) < 150
    ink = screen.browser.execute_script("return getComputedStyle(document.querySelector('.card .title')).color")
    assert sum(int(part) for part in ink.strip("rgb()").split(",")) > 500
    screen.picture("dark")
    screen.served.end()


@pytest.mark.usefixtures("logged")
def test_the_map_shows_and_opens(chromium: Browser, creatures: Path) -> None:
    screen = Screen(chromium, creatures)
    screen.go("#/map")
    screen.until(lambda: "480 images" in screen.text(".map .hint"))
    canvas = screen.all(".map canvas")[0]
    inked = """
        const { width, height } = arguments[0];
        const copy = Object.assign(document.createElement("canvas"), { width, height });
        const pen = copy.getContext("2d", { willReadFrequently: true });
        pen.drawImage(arguments[0], 0, 0);
        return pen.getImageData(0, 0, width, height).data.filter((value, i) => i % 4 === 3 && value > 40).length"""
    screen.until(lambda: screen.browser.execute_script(inked, canvas) > 5000)
    screen.picture("map")
    screen.press("n", "n")
    screen.until(lambda: ", " in screen.text(".map .hint") and "images" in screen.text(".map .hint"))
    named = screen.text(".map .hint").split(",")[0]
    screen.press("+", "-", Keys.ARROW_LEFT, Keys.ARROW_RIGHT)
    box = canvas.rect
    for part in range(1, 40):  # look for a dot as a mouse would
        x, y = ((part * 0.37) % 1 - 0.5) * 0.8, ((part * 0.61) % 1 - 0.5) * 0.8
        there = int(box["width"] * x), int(box["height"] * y)
        ActionChains(screen.browser).move_to_element_with_offset(canvas, *there).perform()
        if screen.all(".hover"):
            break
    assert screen.all(".hover"), "there is a dot under the mouse"
    screen.until(lambda: screen.all(".hover img"))
    pointed = screen.text(".hover b")
    ActionChains(screen.browser).click().perform()
    screen.until(lambda: screen.text("h1") == pointed)
    screen.go("#/map")
    screen.until(lambda: "480 images" in screen.text(".map .hint"))
    screen.until(lambda: screen.browser.execute_script("return document.activeElement.tagName") == "CANVAS")
    screen.press("n", "n")
    screen.until(lambda: screen.text(".map .hint").startswith(f"{named},"))
    screen.press(Keys.ENTER)
    screen.until(lambda: screen.text("h1") == named, "by keyboard too")
    screen.served.end()


def test_hostile_names_and_images_that_have_gone(chromium: Browser, tmp_path: Path) -> None:
    made = strange_run(tmp_path)
    screen = Screen(chromium, made, PHONE)
    assert set(KNOWN) <= set(screen.names())
    screen.go("#/c/3")
    screen.until(lambda: len(screen.tiles()) == len(ODD))
    shown = " ".join(screen.tiles())
    assert "\\x0a" in shown, "a line break is written out"
    assert "\\u202e" in shown, "what turns the writing is written out"
    assert "\\xff" in shown
    assert "<img src=x onerror=alert(1)>" in shown
    assert (
        screen.browser.execute_script("return document.querySelectorAll('img[src=x], script:not([src])').length") == 0
    )
    screen.until(
        lambda: screen.browser.execute_script(
            "return [...document.querySelectorAll('.tile img')].every(i => i.naturalWidth)"
        )
    )
    assert width(screen) <= PHONE[0]
    screen.button("Rename", ".head")
    screen.press("<script>alert(2)</script>" + "long" * 40, Keys.ENTER)
    screen.said("Renamed")
    assert width(screen) <= PHONE[0]
    (tmp_path / "photos" / "unlabeled" / "plain.png").unlink()
    screen.browser.refresh()
    screen.until(lambda: "plain.png" in [tile.text.strip() for tile in screen.all(".tile .gone")])
    screen.browser.refresh()
    screen.until(lambda: "1 of 30 images cannot be found" in screen.text("#banner"))
    shutil.move(tmp_path / "photos", tmp_path / "elsewhere")
    screen.served.end()
    gone = Screen(chromium, made)
    gone.until(lambda: "--images FOLDER" in gone.text("#banner"))
    gone.go("#/c/0")
    gone.until(lambda: len(gone.all(".tile .gone")) == 6)
    gone.press("r", "renamed without pictures", Keys.ENTER)
    gone.until(lambda: gone.found().category(0).name == "renamed without pictures")
    gone.served.end()
    assert not [e for e in chromium.get_log("browser") if "Refused" in e["message"] or "Uncaught" in e["message"]]


@pytest.mark.usefixtures("logged")
def test_a_dropped_image_and_primitive_fields(chromium: Browser, trained_run: Path, tmp_path: Path) -> None:
    run = RunDirectory(shutil.copytree(trained_run, tmp_path / "run"))
    settings = run.settings()
    drawn = load_table(settings["data"])
    drawn.open(5).save(tmp_path / "mine <b>.png")
    (tmp_path / "photos" / "unlabeled").mkdir(parents=True)
    for row, path in enumerate(drawn.paths):
        drawn.open(row).save(tmp_path / "photos" / path)
    run.write("config.yaml", yaml.safe_dump({**settings, "data": {"name": "folder", "path": str(tmp_path / "photos")}}))
    screen = Screen(chromium, run.folder)
    screen.browser.find_element(By.CSS_SELECTOR, "input[type=file]").send_keys(str(tmp_path / "mine <b>.png"))
    screen.until(lambda: "model" in screen.text("#main .hint").lower(), "it says that the model is being loaded")
    screen.until(lambda: "The model says" in screen.text(".told"))
    assert screen.tiles()[0] == screen.found().members[5].path
    assert "mine <b>.png" in screen.text("h1")

    def opened() -> Any:
        ActionChains(screen.browser).double_click(screen.all(".tile")[0]).perform()
        return screen.all("dialog.viewer")

    screen.until(opened)
    screen.button("Primitive fields", "dialog")
    screen.until(lambda: len(screen.all("dialog .overlays img")) >= 3)
    assert "share" in screen.text("dialog .fields").lower()
    screen.press(Keys.ESCAPE)
    screen.button("Add to the run", ".asked")
    screen.until(lambda: screen.text("h1") == "Jobs" and screen.text(".job h2").startswith("Updat"))
    kept = tmp_path / "photos" / "unlabeled" / "mine _b_.png"
    assert kept.read_bytes() == (tmp_path / "mine <b>.png").read_bytes()
    screen.served.end()
