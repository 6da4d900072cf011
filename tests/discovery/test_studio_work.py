"""Where a collection lives, in a real browser: jobs, images that are selected on the map, a page with nothing on it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from browsers import ActionChains, Browser, By, Keys, Select, a_chromium, needs_chromium
from screens import Screen, creatures_run

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return creatures_run(tmp_path_factory.mktemp("studio") / "creatures")


@pytest.fixture
def run(drawn: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(drawn, tmp_path / "creatures"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with a_chromium() as driver:
        yield driver


@pytest.fixture
def opened(run: Path, chromium: Browser) -> Iterator[Screen]:
    screen = Screen(chromium, run)
    yield screen
    screen.served.end()
    chromium.get("about:blank")
    logged = [entry["message"] for entry in chromium.get_log("browser")]
    assert [message for message in logged if "net::ERR_" not in message and "Failed to fetch" not in message] == []


def test_a_job_is_started_watched_and_told(opened: Screen) -> None:
    screen = opened
    screen.go("#/jobs")
    screen.until(
        lambda: len(screen.all(".offer")) == 3, "this run has no model, so it can be neither updated nor refined"
    )
    assert "no model" in screen.text(".jobs")
    Select(screen.browser.find_element(By.CSS_SELECTOR, ".offer select")).select_by_value("csv")
    screen.button("Export", ".offer")
    screen.until(lambda: screen.text(".job h2") == "Export: done")
    assert "creatures-csv.csv" in screen.text(".job .told")
    assert (screen.run.parent / "creatures-csv.csv").is_file()
    screen.button("Report", ".offer")
    screen.go("#/")
    screen.until(lambda: screen.all(".working") or screen.all(".toast.wrong"), "the bar says that it is running")
    screen.said("Report: ")
    screen.button("Look", "#toasts")
    screen.until(lambda: screen.text(".job h2") == "Report: failed" and "described.json" in screen.text(".job .told"))


def test_images_are_selected_on_the_map_by_mouse_and_by_keys(opened: Screen) -> None:
    screen = opened
    screen.go("#/map")
    screen.until(lambda: "480 images" in screen.text(".map .hint"))
    canvas = screen.all(".map canvas")[0]
    screen.press("s")
    screen.until(lambda: screen.browser.find_element(By.CSS_SELECTOR, "canvas.drawing"))
    half, high = canvas.rect["width"] // 2 - 4, canvas.rect["height"] // 2 - 4
    line = ActionChains(screen.browser, 20).move_to_element_with_offset(canvas, -half, -high).click_and_hold()
    for x, y in ((0, -high), (0, high), (-half, high)):
        line = line.move_to_element_with_offset(canvas, x, y)
    line.release().perform()
    screen.until(lambda: " selected" in screen.text(".selection"))
    drawn = int(screen.text(".selection").split()[0])
    places = screen.browser.execute_script("return fetch('/api/map').then((answer) => answer.json())")["places"]
    middle = sum(1 for x in places[::2] if 20 + x / 4000 * (2 * half - 32) < half + 4)  # half of the map, roughly
    assert abs(drawn - middle) < 12, "what lies inside of the line"
    screen.press("v")
    screen.until(lambda: screen.text("h1") == "Selected images" and screen.tiles())
    assert f"{drawn} images" in screen.text("#main .hint")

    screen.go("#/map")
    screen.until(lambda: "480 images" in screen.text(".map .hint"))
    screen.press("n", " ")
    named = screen.text(".map .hint").split(",")[0]
    size = screen.found().category(named).size
    screen.until(lambda: screen.text(".selection").startswith(f"{size} selected"))
    screen.picture("lasso")
    screen.press("m")
    screen.until(lambda: screen.all("dialog.palette li"))
    screen.press("by the map", Keys.ENTER)
    screen.said("Moved")
    assert screen.found().category("by the map").size == size
    screen.until(lambda: not screen.all(".selection"))
    screen.press("e")
    screen.until(lambda: screen.text(".selection").startswith("480 selected"), "all that is in the frame")
    screen.press("x")
    screen.said("Junked 480 images")

    screen.go("#/")
    screen.until(lambda: "480 images are junk" in screen.text("#main .hint"))
    assert [label.text for label in screen.all(".chip")] == ["All 0", f"Empty {len(screen.found().categories)}"]
    screen.press("u")
    screen.until(lambda: len(screen.all(".card")) == 16, "what the message named is undone")
    screen.go("#/junk")
    screen.until(lambda: "Nothing is junk" in screen.text(".head .hint"))
    assert not screen.all(".category select, .category .members button"), "no dead controls"
