"""The studio in a real browser: look, search, rename, merge, split, move, undo; the server killed in the middle; the
keyboard alone; drag and drop; two windows. With NEWKINDS_SCREENSHOTS=FOLDER pictures of it are kept there."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from browsers import ActionChains, Browser, Keys, Select, be, needs_chromium
from screens import Screen, watched
from windows import Served

pytestmark = needs_chromium
ROWS = """
    const box = (card) => card.getBoundingClientRect();
    const cards = [...document.querySelectorAll(".card")];
    return cards.map((card) => [Number(card.dataset.id), box(card).left, box(card).top])"""
MARKED = "return import('/static/store.js').then(({ store }) => store.state.marked)"


@pytest.fixture
def opened(creatures: Path, chromium: Browser) -> Iterator[Screen]:
    """The studio of a run; nothing is logged by the browser but that an edit was refused."""
    with watched(chromium, creatures, "409 (Conflict)") as screen:
        yield screen


def test_a_morning_in_the_studio_with_a_crash_in_it(opened: Screen) -> None:
    screen = opened
    assert len(screen.all(".card")) == 16
    screen.until(lambda: screen.browser.execute_script("return document.images[0].naturalWidth > 0"))
    screen.picture("wall")

    screen.click("#bar input[type=search]")
    screen.press("new-3")
    screen.until(lambda: screen.names() == ["new-3"])
    screen.browser.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    screen.press("creature-0001")
    screen.until(lambda: len(screen.tiles()) == 10)
    assert all("creature-0001" in path for path in screen.tiles())
    screen.press(Keys.ESCAPE)
    screen.until(lambda: len(screen.all(".card")) == 16)

    screen.click('.card[data-id="10"]')
    screen.until(lambda: screen.text("h1") == "new-3" and screen.tiles())
    members = sorted((m for m in screen.found().members if m.category_id == 10), key=lambda m: m.confidence)
    assert screen.tiles()[:12] == [m.path for m in members][:12], "least certain first"
    screen.until(lambda: len(screen.all(".near")) == 8)
    screen.picture("category")

    screen.button("Rename", ".head")
    screen.browser.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    screen.press('Shiba "inu" <b>', Keys.ENTER)
    screen.until(lambda: screen.text("h1") == 'Shiba "inu" <b>')
    assert screen.found().category(10).name == 'Shiba "inu" <b>'

    near = screen.until(lambda: screen.all(".near .card")[0].get_attribute("data-id"))
    screen.button("Side by side", ".near")
    screen.until(lambda: len(screen.all("dialog .side")) == 2)
    screen.picture("merge")
    before = screen.found()
    size = before.category(10).size + before.category(int(near)).size
    screen.click('dialog input[value="10"]')
    screen.button("Merge", "dialog")
    screen.said("Merged")
    assert screen.found().category(10).size == size
    assert int(near) not in {c.id for c in screen.found().categories}

    screen.button("Split", ".head")
    screen.until(lambda: screen.all("dialog .part"))
    Select(screen.all("dialog select")[0]).select_by_value("3")
    screen.until(lambda: len(screen.all("dialog .part")) == 3)
    sizes = [int(element.text.split()[0]) for element in screen.all("dialog .part small")]
    assert sum(sizes) == size
    assert screen.found().revision == 2, "a preview changes nothing"
    screen.button("Split into 3", "dialog")
    screen.said("Split")
    assert [screen.found().category(n).size for n in (10, 16, 17)] == sizes, "exactly what was shown"

    screen.click("#bar button[aria-label^='Undo']")
    screen.said("Undo: split")
    assert screen.found().category(10).size == size

    screen.served.end(signal.SIGKILL)
    screen.button("Accept all", ".head")
    screen.until(lambda: "Nothing is lost" in screen.text("#banner"))
    screen.served = Served(screen.run)
    screen.open()
    assert 'Shiba "inu" <b>' in screen.names()
    assert len(screen.all(".card")) == 15
    screen.go("#/log")
    screen.until(lambda: len(screen.all(".log li")) == 4)
    assert "undone" in screen.all(".log li")[1].text


def test_the_keyboard_is_enough(opened: Screen) -> None:
    screen = opened
    focus = "return document.activeElement.getAttribute('aria-label') ?? document.activeElement.id"
    start = screen.names()
    screen.browser.execute_script("document.querySelector('#bar a').focus()")
    for _ in range(30):  # from the bar to the cards, as Tab goes
        screen.press(Keys.TAB)
        if screen.browser.execute_script("return document.activeElement.classList.contains('card')"):
            break
    assert screen.browser.execute_script(focus).startswith(start[0])
    assert screen.browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    screen.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_UP)
    assert screen.browser.execute_script(focus).startswith(start[1])
    screen.press(Keys.ENTER)
    screen.until(lambda: screen.text("h1") == start[1] and screen.tiles())
    screen.until(lambda: "sure" in (screen.browser.execute_script(focus) or ""), "the first image has the focus")

    paths = screen.tiles()
    screen.press(Keys.ARROW_RIGHT, " ")
    ActionChains(screen.browser).key_down(Keys.SHIFT).send_keys(Keys.ARROW_RIGHT).key_up(Keys.SHIFT).perform()
    screen.until(lambda: "2 selected" in screen.text(".selection"))
    screen.press("m")
    screen.until(lambda: screen.all("dialog.palette li[aria-selected=true]"))
    screen.press("a new kind", Keys.ENTER)
    screen.said("Moved 2 images")
    moved = [m.path for m in screen.found().members if m.category == "a new kind"]
    assert sorted(moved) == sorted(paths[1:3])
    screen.until(lambda: screen.tiles()[:2] == [paths[0], paths[3]])
    on_a_tile = "return document.activeElement.classList.contains('tile')"
    screen.until(lambda: screen.browser.execute_script(on_a_tile), "the focus stays")
    screen.press("x")
    screen.said("Junked")
    assert [m.path for m in screen.found().members if m.status == "junk"] == [paths[3]]
    screen.press("a")
    screen.said("Accepted")
    ActionChains(screen.browser).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()
    screen.until(lambda: screen.found().log()[-1][0]["edit"] == "undo")
    chord = ActionChains(screen.browser).key_down(Keys.CONTROL).key_down(Keys.SHIFT).send_keys("z")
    chord.key_up(Keys.SHIFT).key_up(Keys.CONTROL).perform()
    screen.until(lambda: screen.found().log()[-1][0]["edit"] == "redo")

    screen.press(Keys.ENTER)
    screen.until(lambda: screen.all("dialog.viewer .large"))
    shown = screen.text("dialog .path")
    screen.press(Keys.ARROW_RIGHT)
    screen.until(lambda: screen.text("dialog .path") not in ("", shown))
    screen.press(Keys.ESCAPE)
    screen.until(lambda: not screen.all("dialog"))
    screen.press("l")
    screen.until(lambda: screen.text("h1") == "More like it" and len(screen.tiles()) > 10)
    screen.press("g", "new-5", Keys.ENTER)
    screen.until(lambda: screen.text("h1") == "new-5")
    screen.press("r")
    screen.until(lambda: screen.all(".renaming"))
    screen.press("by key", Keys.ENTER)
    screen.until(lambda: screen.text("h1") == "by key")
    screen.press("s")
    screen.until(lambda: screen.all("dialog .part"))
    screen.press(Keys.ESCAPE)
    screen.until(lambda: not screen.all("dialog"))
    screen.press("?")
    screen.until(lambda: "Keys" in screen.text("dialog h2"))
    screen.press(Keys.ESCAPE, "5")
    screen.until(lambda: screen.browser.current_url.endswith("#/map"))


def test_a_toast_undoes_what_it_names_and_one_act_has_one_toast(opened: Screen) -> None:
    screen = opened
    screen.go("#/c/9")
    screen.until(lambda: screen.tiles())
    first, second = screen.tiles()[:2]
    screen.browser.execute_script("document.querySelector('.tile').focus()")
    screen.press("x")
    screen.said("Junked")
    screen.press("x")
    screen.until(lambda: [m.path for m in screen.found().members if m.status == "junk"] == sorted([first, second]))
    older = next(toast for toast in screen.all(".toast") if first in toast.text)
    older.find_element("css selector", "button").click()
    screen.until(lambda: [m.path for m in screen.found().members if m.status == "junk"] == [second])

    screen.browser.execute_script("document.getElementById('toasts').replaceChildren()")
    screen.button("Junk", ".head")
    screen.until(lambda: screen.browser.current_url.endswith("#/"))
    screen.until(lambda: len(screen.all(".toast")) == 1 and "Junked" in screen.all(".toast")[0].text)


def test_drag_and_drop(opened: Screen) -> None:
    screen = opened
    screen.go("#/c/9")
    screen.until(lambda: len(screen.all(".near")) == 8 and screen.tiles())
    screen.until(lambda: screen.browser.execute_script(MARKED), "nothing is made again in the middle of it")
    path, target = screen.tiles()[0], screen.all(".near .card")[1]
    to = int(target.get_attribute("data-id"))
    tile = next(tile for tile in screen.all(".tile") if tile.get_attribute("title") == path)
    ActionChains(screen.browser).drag_and_drop(tile, target).perform()
    screen.said("Moved")
    assert next(m for m in screen.found().members if m.path == path).category_id == to
    screen.go("#/")
    screen.until(lambda: len(screen.all(".card")) == 16)
    first, second = screen.all(".card")[:2]
    pair = {int(card.get_attribute("data-id")) for card in (first, second)}
    ActionChains(screen.browser).drag_and_drop(first, second).perform()
    screen.until(lambda: len(screen.all("dialog .side")) == 2)
    assert {int(e.get_attribute("value")) for e in screen.all("dialog input[type=radio]")} == pair
    screen.press(Keys.ESCAPE)
    screen.until(lambda: not screen.all("dialog"))
    assert len(screen.found().categories) == 16, "nothing is merged without a yes"


@pytest.mark.parametrize("last", [Keys.ENTER, Keys.ESCAPE])
def test_after_a_name_keys_are_about_images_again(opened: Screen, last: str) -> None:
    screen = opened
    screen.go("#/c/11")
    screen.until(lambda: screen.tiles() and not screen.all(".renaming"))
    screen.press("r")
    screen.until(lambda: screen.all(".renaming"))
    screen.press("gull", last)
    screen.until(lambda: "tile" in (screen.browser.switch_to.active_element.get_attribute("class") or "").split())
    assert screen.text("h1") == ("gull" if last == Keys.ENTER else screen.found().category(11).name)
    screen.press(" ")
    screen.until(lambda: len(screen.all(".tile[aria-selected=true]")) == 1)
    screen.press(Keys.ESCAPE)


def test_two_windows_tell_each_other(opened: Screen) -> None:
    screen = opened
    first = screen.browser.current_window_handle
    screen.browser.switch_to.new_window("tab")
    try:
        second = screen.browser.current_window_handle
        be(screen.browser)
        screen.browser.get(f"http://127.0.0.1:{screen.served.port}/#/c/9")
        screen.until(lambda: screen.tiles())
        screen.found().rename(9, "by the command line")
        screen.until(lambda: screen.text("h1") == "by the command line", "it asks whether others have changed it")
        asks_no_more = "Object.defineProperty(document, 'hidden', { value: true, configurable: true })"
        screen.browser.execute_script(asks_no_more)
        screen.browser.switch_to.window(first)
        screen.go("#/c/9")
        screen.until(lambda: screen.text("h1") == "by the command line" and screen.tiles())
        screen.button("Rename", ".head")
        screen.press("by the first", Keys.ENTER)
        screen.until(lambda: screen.text("h1") == "by the first")
        screen.browser.switch_to.window(second)
        screen.button("Rename", ".head")
        screen.press("by the second", Keys.ENTER)
        screen.said("has changed this since you looked")
        screen.until(lambda: screen.text("h1") == "by the first", "it shows what is there now")
        assert screen.found().category(9).name == "by the first"
    finally:
        screen.browser.close()
        screen.browser.switch_to.window(first)


def test_similar_categories_stand_together_and_arrows_go_where_they_point(opened: Screen) -> None:
    screen = opened
    screen.until(lambda: screen.browser.execute_script(MARKED))
    screen.until(lambda: screen.all(".tools select"))
    Select(screen.all(".tools select")[0]).select_by_value("similar")
    tree = screen.found().tree()
    screen.until(lambda: len(screen.all(".wall .group")) == len(tree.groups()))
    placed = screen.browser.execute_script(ROWS)
    assert [number for number, _, _ in placed] == tree.order
    where = {number: (left, top) for number, left, top in placed}
    starts = [where[group[0]] for group in tree.groups()]
    assert len({left for left, _ in starts}) == 1
    assert len({top for _, top in starts}) == len(starts), "each group begins a row of its own"
    second = tree.groups()[1][0]
    screen.browser.execute_script(f"document.querySelector('.card[data-id=\"{second}\"]').focus()")
    screen.press(Keys.ARROW_UP)
    above = int(screen.browser.switch_to.active_element.get_attribute("data-id"))
    assert where[above][0] == where[second][0]
    assert where[above][1] == max(top for _, top in where.values() if top < where[second][1])
    screen.press(Keys.ARROW_DOWN)
    assert int(screen.browser.switch_to.active_element.get_attribute("data-id")) == second
