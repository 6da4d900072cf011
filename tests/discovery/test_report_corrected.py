"""The page shows what people corrected: names, merged, split and moved images, junk, the log; and no stale figures."""

from dataclasses import asdict
from pathlib import Path

import pytest

from newkinds.discovery.categories import Discovery
from newkinds.discovery.report import CategoryRow, Page, render
from newkinds.discovery.report.accuracy import state_of
from newkinds.discovery.report.build import page_of
from newkinds.runs.directory import RunDirectory
from pages import HOSTILE, Document
from pictured import pictured

FIGURES = {"acc_all": 0.5, "acc_old": 0.25, "acc_new": None, "nmi": 0.75, "ari": 0.125}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return pictured(tmp_path)


def page(run: Path) -> Page:
    return page_of(RunDirectory(run))


def row(shown: Page, name: str) -> CategoryRow:
    return next(row for row in shown.categories if row.name == name)


def paths(row: CategoryRow) -> set[str]:
    return {image.caption for image in (*row.most, *row.others, *row.least)}


def text(shown: Page) -> str:
    return " ".join(Document(render(shown)).text.split())


def in_category(run: Path, name: str) -> list[str]:
    return [member.path for member in Discovery.read(run).members if member.category == name]


def test_without_edits_nothing_is_said_about_them(run: Path) -> None:
    shown = page(run)
    assert shown.by_hand is None
    assert not any(row.history for row in shown.categories)
    assert "by hand" not in text(shown)
    assert [row.id for row in shown.categories] == [2, 3, 4, 5, 0, 1]
    assert "cat #0" in text(shown), "the id stands beside the name"


def test_names_merges_splits_and_moves_are_seen_through(run: Path) -> None:
    one, two, three, four = (in_category(run, f"new-{i}") for i in (1, 2, 3, 4))
    found = Discovery.read(run)
    found.rename("new-1", "heron")
    found.merge(["new-2", "heron"], into="heron")
    found.split("new-3", 2)
    found.move(four[:2], "dog")
    shown = page(run)
    assert {row.name for row in shown.categories} == {"cat", "dog", "heron", "new-3", "new-3-2", "new-4"}
    assert paths(row(shown, "heron")) == {*one, *two}
    assert row(shown, "heron").history == "found as “new-1”; with “new-2” merged into it"
    assert row(shown, "new-3-2").history == "made by hand"
    assert row(shown, "new-3-2").id == 6
    assert paths(row(shown, "new-3")) | paths(row(shown, "new-3-2")) == set(three)
    assert set(four[:2]) <= paths(row(shown, "dog"))
    moved = {i.caption: i.status for i in row(shown, "dog").most if i.status}
    assert moved == dict.fromkeys(four[:2], "moved"), "what a person decided comes first"
    document = Document(render(shown))
    badges = [tile for tile in document.all("i") if "moved" in (tile.get("class") or "").split()]
    assert {tile["title"] for tile in badges} == set(four[:2])
    assert all("moved by hand" in (tile["data-note"] or "") and "%" not in (tile["data-note"] or "") for tile in badges)
    assert "with 4 corrections by hand" in text(shown)
    assert "4 corrections are in force: 2 images moved." in text(shown)
    assert all(row.dots is not None for row in shown.categories), "every category is on the map"


def test_junk_is_in_no_category_and_listed_with_the_reason(run: Path) -> None:
    found = Discovery.read(run)
    gone, single = in_category(run, "new-2"), in_category(run, "new-4")[0]
    found.junk(category="new-2")
    found.junk([single])
    shown = page(run)
    assert not {*gone, single} & {path for row in shown.categories for path in paths(row)}
    assert shown.by_hand is not None
    assert {(image.caption, reason) for image, reason in shown.by_hand.junk} == {
        *((path, "edit 1: junked 'new-2' (6 images)") for path in gone),
        (single, f"edit 2: junked {single}"),
    }
    assert all(image.tile is not None for image, _ in shown.by_hand.junk)
    assert "Junk 7" in text(shown)
    assert "in 29 images" in shown.subtitle
    assert ("images assigned", "29") in shown.summary


def test_the_log_is_told_with_what_was_undone(run: Path) -> None:
    found = Discovery.read(run)
    found.rename("new-1", "heron")
    found.accept(category="new-3")
    found.undo()
    shown = page(run)
    assert shown.by_hand is not None
    assert [(line.number, line.says, line.in_force) for line in shown.by_hand.log] == [
        (3, "undo: accepted 6 images of 'new-3'", True),
        (2, "accepted 6 images of 'new-3'", False),
        (1, "renamed 'new-1' to 'heron'", True),
    ]
    assert (shown.by_hand.in_force, dict(shown.by_hand.counts)["images accepted"]) == (1, 0)
    assert "undone" in text(shown)
    found.redo()
    accepted = row(page(run), "new-3")
    assert {image.status for image in (*accepted.most, *accepted.least)} == {"accepted"}


def test_a_label_follows_its_class_and_a_decision_ends_a_doubt(run: Path) -> None:
    found = Discovery.read(run)
    cat = next(member.path for member in found.members if member.given_label == "cat")
    dog = next(member.path for member in found.members if member.given_label == "dog")
    found.rename("cat", "kitty")
    found.split("kitty", parts=[[p for p in in_category(run, "kitty") if p != cat], [cat]])
    found.merge(["dog", "new-1"], into="new-1")
    shown = page(run)
    assert shown.doubts == [], "renamed, split or merged: it is still where its label says"
    images = {image.caption: image for r in shown.categories for image in (*r.most, *r.least)}
    assert (images[cat].category, images[cat].agrees) == ("kitty-2", True)
    assert (images[dog].category, images[dog].agrees) == ("new-1", True)
    found.move([cat], "new-2")
    shown = page(run)
    assert shown.doubts == [], "a person has decided"
    assert next(image for image in row(shown, "new-2").most if image.caption == cat).agrees is False


@pytest.mark.parametrize("name", [name for name in HOSTILE if len(name) < 200 and name.isprintable()])
def test_names_that_people_give_stay_text(run: Path, name: str) -> None:
    found = Discovery.read(run)
    found.rename("new-1", name)
    found.merge(["new-2", name], into=name)
    found.junk(category="new-3")
    html = render(page(run))
    document = Document(html)
    assert len(document.all("script")) == 1
    assert not [tag for tag, attributes in document.elements if any(a.startswith("on") for a in attributes)]
    assert f"renamed 'new-1' to '{name}'" in document.text
    assert f"merged 'new-2' into '{name}'" in document.text


def evaluated(run: Path, **changes: object) -> None:
    """An evaluation of the run as it is now."""
    record = {
        "evaluated": 34, "metrics": FIGURES, "as_found": None, "test": None, "truth": None,
        "state": asdict(state_of(Discovery.read(run))),
        "protocol": {"evaluated": "34 unlabelled training images", "metric": "accuracy", "seed": "0"},
    }  # fmt: skip
    RunDirectory(run).write_json("evaluation.json", record | changes)


def test_figures_are_shown_with_and_without_corrections(run: Path) -> None:
    assert page(run).accuracy is None
    evaluated(run)
    shown = page(run).accuracy
    assert shown is not None
    assert [(r.name, r.all, r.old, r.new) for r in shown.rows] == [("as the model found them", 0.5, 0.25, None)]
    assert shown.protocol == [("evaluated", "34 unlabelled training images"), ("metric", "accuracy")]
    Discovery.read(run).rename("new-1", "heron")
    test = {"evaluated": 3, "metrics": {**FIGURES, "nmi": 1.0}, "model": "m", "images": "i"}
    evaluated(run, metrics={**FIGURES, "acc_all": 0.875}, as_found=FIGURES, test=test)
    said = text(page(run))
    assert "as the model found them 50.0 % 25.0 % – 75.0 % 12.5 %" in said
    assert "with corrections by hand 87.5 % 25.0 % – 75.0 % 12.5 %" in said
    assert "test images, by the model 50.0 % 25.0 % – 100.0 % 12.5 %" in said


def test_stale_figures_are_not_shown(run: Path) -> None:
    found = Discovery.read(run)
    found.rename("new-1", "heron")
    evaluated(run, metrics={**FIGURES, "acc_all": 0.875}, as_found=FIGURES)
    found.merge(["new-2", "new-3"])
    said = text(page(run))
    assert "87.5 %" not in said
    assert "as the model found them 50.0 %" in said, "that is still so"
    assert "1 edit was made since, which these figures do not know of. Run newkinds eval again." in said
    evaluated(run, state={"assignments": "of another run", "edits": 2})
    said = text(page(run))
    assert "50.0 %" not in said
    assert "Other categories were found since" in said
