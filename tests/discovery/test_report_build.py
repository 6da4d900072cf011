"""The page of a run: what is read from its folder, which images are chosen, and what is said about them."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from newkinds.discovery.categories import Discovery
from newkinds.discovery.report import Page, page_images, render
from newkinds.discovery.report.accuracy import read_number
from newkinds.discovery.report.build import page_of
from newkinds.discovery.studio.state import Studio
from newkinds.discovery.summary import discovery_text
from newkinds.errors import NewkindsError
from newkinds.runs.directory import RunDirectory
from newkinds.runs.records import Findings, PlanRecord, Reliability
from newkinds.runs.run import Run
from pages import Document

PLAN = {
    "chosen": "adapter", "why": "it is better", "rule": "the best wins", "budget_seconds": 600, "splits": 3,
    "candidates": [
        {"name": "frozen", "settings": {}, "scores": [0.49, 0.51], "old": 0.6, "new": 0.4, "seconds": 2,
         "state": "judged"},
        {"name": "adapter", "settings": {"train": {"epochs": 3}}, "scores": [0.7], "old": 0.7, "new": 0.7,
         "seconds": 95, "state": "judged"},
        {"name": "slow", "settings": {}, "scores": [], "old": None, "new": None, "state": "not tried: no time"},
    ],
    "stages": [{"name": "embedding", "seconds": 7261}],
}  # fmt: skip
COUNT = {"answer": 4, "curve": [[3, 0.5], [4, 0.9], [5, 0.7]], "method": "ward", "known": 2, "score_is": "fits"}
INTERVAL = {"low": 3, "high": 6, "level": 0.9, "sure": "fairly sure", "votes": {"gap": 5}}
CALIBRATION = {
    "bins": [
        {"low": 0.8, "high": 0.9, "images": 12, "confidence": 0.85, "correct": 0.75},
    ],
    "error": 0.1, "images": 12, "note": "by temperature",
}  # fmt: skip
CHECK = "path,check,score,sentence\n,imbalance,2,unequal classes\ncreature-00003.png,duplicate,1,twice here\n"


def page_in(folder: Path) -> Page:
    return page_of(RunDirectory(folder))


def rewrite(folder: Path, name: str, change: Callable[[int, dict[str, str]], dict[str, str]]) -> None:
    """Change each row of a table of a run, as if it had been found so."""
    run = RunDirectory(folder)
    rows = [{**row, **change(number, row)} for number, row in enumerate(run.read_table(name))]
    run.write_table(name, tuple(rows[0]), [tuple(row.values()) for row in rows])


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    """A finished run of which the test may change files."""
    copy = tmp_path / "run"
    copy.mkdir()
    for file in trained_run.iterdir():
        if file.is_file() and not file.name.startswith("."):
            (copy / file.name).write_bytes(file.read_bytes())
    return copy


def test_every_image_is_on_the_page_once_ordered_by_confidence(run: Path) -> None:
    page = page_in(run)
    assert sum(row.size for row in page.categories) == 32
    for row in page.categories:
        order = [image.confidence for image in (*row.most, *row.others, *row.least)]
        assert order == sorted(order, reverse=True)
        assert row.shown == row.size
        assert all(image.tile is not None and image.category == row.name for image in (*row.most, *row.least))
    paths = [image.caption for row in page.categories for image in (*row.most, *row.others, *row.least)]
    assert sorted(paths) == sorted(row["path"] for row in Run(run).read_table("assignments.csv"))


@pytest.mark.parametrize("edited", [False, True])
def test_labels_that_the_model_would_not_give_are_doubts_even_if_names_were_edited(run: Path, edited: bool) -> None:
    file, rows = run / "categories.json", Run(run).read_table("assignments.csv")
    names = [entry["name"] for entry in json.loads(file.read_text())]
    labelled = [number for number, row in enumerate(rows) if row["given_label"]]
    other = next(number for number in range(len(names)) if number != int(rows[labelled[0]]["category_id"]))
    says = {labelled[0]: {"model_category_id": f"{other}", "model_confidence": "0.7500"}}
    nothing = {"model_category_id": "", "model_confidence": ""}
    rewrite(run, "assignments.csv", lambda number, _: says.get(number, nothing))
    if edited:
        names = [f"my {name}" for name in names]
        entries = json.loads(file.read_text())
        file.write_text(json.dumps([{**entry, "name": name} for entry, name in zip(entries, names, strict=True)]))
    page = page_in(run)
    [doubt] = page.doubts
    assert (doubt.caption, doubt.given_label) == (rows[labelled[0]]["path"], rows[labelled[0]]["given_label"])
    assert (doubt.model_says, doubt.model_confidence) == (names[other], 0.75)
    assert f"the model says {names[other]}" in Document(render(page)).text


def test_images_unlike_every_category_come_first_the_strangest(run: Path) -> None:
    unlike = {1: "3.5", 3: "1.1", 0: "1.0"}
    rewrite(run, "assignments.csv", lambda number, _: {"unlike": unlike.get(number, "0.2")})
    paths = [row["path"] for row in Run(run).read_table("assignments.csv")]
    page = page_in(run)
    assert [(i.caption, i.unlike) for i in page.unlike] == [(paths[1], 3.5), (paths[3], 1.1)]
    assert "3.5" in Document(render(page)).text.partition("Unlike every category 2")[2]


def test_page_summary_and_studio_call_the_same_images_unlike(run: Path) -> None:
    """By one limit, with one figure; what a person has decided about is called so by none of them."""
    unlike = {1: "3.5", 3: "1.1", 0: "1.0"}
    rewrite(run, "assignments.csv", lambda number, _: {"unlike": unlike.get(number, "0.2")})
    found = Discovery.read(run)
    paths = [member.path for member in found.members]
    for expected in ({paths[1]: 3.5, paths[3]: 1.1}, {paths[3]: 1.1}):
        page, studio = page_in(run), Studio(run)
        assert {image.caption: image.unlike for image in page.unlike} == expected
        assert f"{len(expected)} image{'s are' if len(expected) > 1 else ' is'} unlike every" in discovery_text(found)
        cards = studio.state()["categories"]
        images = [image for card in cards for image in studio.members(card["id"])["images"]]
        assert {image["path"]: image["unlike"] for image in images if "unlike" in image} == expected
        assert sum(card["unlike"] for card in cards) == len(expected)
        assert render(page).count("unlike every category (1.10)") > 0
        assert ("unlike every category (3.50)" in render(page)) == (paths[1] in expected)
        found.accept([paths[1]])


def test_what_other_steps_left_is_shown(run: Path) -> None:
    assert "not calibrated" in (without_figure := Document(render(page_in(run))).text)  # too few labelled images here
    assert "Measured on" not in without_figure
    (run / "calibration.json").unlink()
    plain = Document(render(page_in(run)))
    assert not {"plan", "count", "reliability", "check"} & {attributes.get("id") for _, attributes in plain.elements}
    for name, content in (("plan", PLAN), ("k_auto", COUNT | INTERVAL), ("calibration", CALIBRATION)):
        Run(run).write_json(f"{name}.json", content)
    (run / "check.csv").write_text(CHECK)
    text = " ".join(Document(render(page_in(run))).text.split())
    for said in (
        "adapter: it is better", "the best wins", "adapter chosen", "70.0 %", "95 s",
        "not tried: no time", "2 h 1 min", "Judged on 3 splits", "Time allowed: 10 min.",
        "Between 3 and 6 with a probability of 90 %. The number is a fair guess", "gap 5",
        "by temperature", "12 labelled images", "differ by 10.0 %", "80 % to 90 %",
        "unequal classes", "twice here", "creature-00003.png",
    ):  # fmt: skip
        assert said in text, said


def test_a_count_without_an_interval_and_one_made_later(run: Path) -> None:
    (run / "count.json").write_text(json.dumps(COUNT | {"answer": 5}))
    assert (choice := read_number(Run(run))) is not None
    assert (choice.answer, choice.low, choice.votes) == (5, None, {})
    (run / "k_auto.json").write_text(json.dumps(COUNT))
    assert (choice := read_number(Run(run))) is not None
    assert choice.answer == 4, "what the run was made with, before what was counted later"


@pytest.mark.parametrize(
    ("read", "name", "content"),
    [
        (PlanRecord.find, "plan.json", "[]"),
        (PlanRecord.find, "plan.json", '{"chosen": "x", "candidates": [1]}'),
        (PlanRecord.find, "plan.json", "{"),
        (read_number, "k_auto.json", '{"answer": "many"}'),
        (read_number, "count.json", "3"),
        (Reliability.find, "calibration.json", '{"bins": 3}'),
        (Findings.read, "check.csv", "path\na.png\n"),
    ],
)
def test_what_is_damaged_is_named(tmp_path: Path, read: Callable[[Run], object], name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(NewkindsError, match=re.escape(name)):
        read(Run(tmp_path))


def test_of_too_many_images_a_sample_is_shown_and_the_page_says_so(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_images, "ENDS", 1)
    monkeypatch.setattr(page_images, "MOST_PICTURES", 12)
    page = page_in(run)
    shown = sum(row.shown for row in page.categories)
    in_doubt = {image.caption: image for image in (*page.doubts, *page.unlike)}
    assert shown <= 12 + len(in_doubt)
    assert all(image.tile is not None for image in in_doubt.values())
    assert "An even sample" in Document(render(page)).text
    (largest, *_) = sorted(page.categories, key=lambda row: -row.size)
    assert f"{len(largest.others)} of the {largest.size - 2} others" in Document(render(page)).text


@pytest.mark.parametrize(("groups", "most"), [(3, 30), (40, 30), (3, 1000)])
def test_the_choice_is_bounded_even_and_keeps_what_is_wanted(
    groups: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_images, "MOST_PICTURES", most)
    members = np.arange(groups * 50).reshape(groups, 50)
    first, last, between = page_images._chosen(list(members), wanted={25, 27})
    chosen = [place for group in (*first, *last, *between) for place in group]
    assert len(chosen) == len(set(chosen)) <= max(most, 2 * groups) + 2 + groups
    assert {25, 27} <= set(chosen)
    assert [group[0] for group in first] == members[:, 0].tolist()
    assert [group[-1] for group in last] == members[:, -1].tolist()
    if most == 1000:
        assert sorted(chosen) == members.flatten().tolist()
