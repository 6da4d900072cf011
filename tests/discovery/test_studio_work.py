"""Where a collection lives, in a real browser: what to look at next, what is new, what has no place yet, jobs, images
that are selected on the map, a page with nothing on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from browsers import ActionChains, Browser, By, Keys, Select, needs_chromium
from newkinds.discovery.questions import next_questions
from screens import Screen, watched
from windows import with_update

pytestmark = needs_chromium


@pytest.fixture
def opened(creatures: Path, chromium: Browser) -> Iterator[Screen]:
    with watched(chromium, creatures) as screen:
        yield screen


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
    screen.picture("lasso")
    screen.press("v")
    screen.until(lambda: screen.text("h1") == "Selected images" and screen.tiles())
    assert f"{drawn} images" in screen.text("#main .hint")

    screen.go("#/map")
    screen.until(lambda: "480 images" in screen.text(".map .hint"))
    screen.press("n", " ")
    named = screen.text(".map .hint").split(",")[0]
    size = screen.found().category(named).size
    screen.until(lambda: screen.text(".selection").startswith(f"{size} selected"))
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


def answered(screen: Screen, key: str, place: str, did: str) -> None:
    screen.press(key)
    screen.until(lambda: place in screen.text(".so-far") and did in screen.text(".did"), f"{key}: {place}, {did}")


def test_the_queue_is_answered_by_single_keys(opened: Screen) -> None:
    screen = opened
    questions = next_questions(screen.found(), number=20)
    doubtful = next(place for place, question in enumerate(questions) if question.kind == "doubt")
    assert doubtful >= 4, "the first ones are about names"
    screen.press("2")
    screen.until(lambda: "1 of 20" in screen.text(".so-far") and "What is this?" in screen.text(".asked-about h1"))
    assert questions[0].says_why in screen.text(".asked-about .told")
    screen.picture("next")
    screen.press(Keys.ENTER)
    screen.until(lambda: screen.all("dialog input"))
    screen.press("Shiba inu", Keys.ENTER)
    screen.until(lambda: "2 of 20" in screen.text(".so-far"))
    assert screen.found().category(questions[0].category_id).name == "Shiba inu"
    answered(screen, "y", "3 of 20", f"Accepted {questions[1].path}")
    answered(screen, "x", "4 of 20", f"Junked {questions[2].path}")
    answered(screen, "u", "3 of 20", f"Undo: junked {questions[2].path}")
    assert [m.status for m in screen.found().members].count("junk") == 0
    screen.press("m")
    screen.until(lambda: screen.all("dialog.palette li"))
    screen.press("quite another", Keys.ENTER)
    screen.until(lambda: "4 of 20" in screen.text(".so-far"))
    where = {member.path: member.category for member in screen.found().members}
    assert where[questions[2].path] == "quite another"
    for place in range(3, doubtful):
        screen.press("s")
        screen.until(lambda place=place: f"{place + 2} of 20" in screen.text(".so-far"))
    asked = questions[doubtful]
    answered(screen, "2", f"{doubtful + 2} of 20", f"Moved {asked.path}")
    assert next(m for m in screen.found().members if m.path == asked.path).category_id == asked.other_id
    ahead = questions[doubtful + 2]
    screen.found().accept([ahead.path])  # meanwhile, by somebody else
    screen.press("s")
    screen.until(lambda: f"{doubtful + 4} of 20" in screen.text(".so-far"), "what others have answered is not asked")
    for _ in range(20):
        screen.press("s")
    screen.until(lambda: "That is all for now" in screen.text(".asked-about h1"))
    assert "4 answers" in screen.text(".asked-about .hint")
    screen.press(Keys.ENTER)
    screen.until(lambda: screen.text(".so-far").startswith("1 of 20"))


def test_what_is_new_and_what_has_no_place_yet(creatures: Path, chromium: Browser) -> None:
    run = with_update(creatures)
    with watched(chromium, run) as screen:
        waiting = sorted(member.path for member in screen.found().pool)
        screen.press("3")
        screen.until(lambda: screen.text("h1") == "New since last time" and screen.tiles())
        assert "40 images came; 1 category opened, 1 copy left out" in screen.text("#main .hint")
        heads = screen.until(lambda: [head.text.split("\n")[0] for head in screen.all(".group-head")])
        assert heads[:2] == ["new-8", "not placed yet"]
        first = screen.tiles()[0]
        screen.until(lambda: "sure" in screen.browser.execute_script("return document.activeElement.ariaLabel"))
        screen.press(Keys.ARROW_DOWN)
        screen.until(lambda: screen.browser.execute_script("return document.activeElement.dataset.index") == "1")
        screen.picture("new")
        screen.button("Accept", ".group-head")
        screen.said("Accepted")
        assert [m.path for m in screen.found().members if m.status == "accepted"] == [first]

        screen.press("4")
        screen.until(lambda: sorted(screen.tiles()) == waiting)
        screen.until(lambda: len(screen.all(".tile .second")) == len(waiting), "where each may belong")
        second, path = screen.text(".tile .second").removeprefix("→ "), screen.tiles()[0]
        screen.browser.execute_script("document.querySelector('.tile').focus()")
        screen.press("b")
        screen.said(f"Moved {path} to '{second}'")
        screen.until(lambda: len(screen.tiles()) == len(waiting) - 1)
        screen.button("Select all", ".tools")
        screen.press("m")
        screen.until(lambda: screen.all("dialog.palette li"))
        screen.press("found in the pool", Keys.ENTER)
        screen.said("to 'found in the pool'")
        assert screen.found().category("found in the pool").size == len(waiting) - 1
        screen.until(lambda: "Every image has a place" in screen.text(".head .hint"))
        assert not screen.all(".members button, .members select")
