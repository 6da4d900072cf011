"""The page of images that a run was asked about: by category, strangers in groups of those that are alike."""

import re
from pathlib import Path

import numpy as np
import pytest

from conftest import save_image
from discovered import DIM
from newkinds.data.folder import table_below
from newkinds.discovery.categories import Discovery
from newkinds.discovery.kinds import Member
from newkinds.discovery.report import Page, page_images, render
from newkinds.discovery.report.predicted import page_of_predictions
from newkinds.discovery.split import read_embedding
from newkinds.discovery.strangers import MOST_LINKED, group_alike, usual_width
from newkinds.errors import Skipped
from newkinds.runs.directory import RunDirectory
from pages import HOSTILE, Document
from pictured import pictured


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_the_width_of_a_category_is_the_mean_distance_of_its_pairs() -> None:
    rows = unit(np.random.default_rng(0).normal(size=(40, DIM)))
    of = np.repeat([-2, -1, 0, 3, 7, 9], [5, 4, 10, 12, 8, 1])  # two of them in no category, one image alone
    widths = []
    for number in (0, 3, 7):
        inside = np.flatnonzero(of == number)
        pairs = [1 - float(rows[a] @ rows[b]) for a in inside for b in inside if a < b]
        widths.append(sum(pairs) / len(pairs))
    assert usual_width(rows, of) == pytest.approx(np.quantile(widths, 0.9), rel=1e-4)
    assert usual_width(rows, np.full(40, -1)) == 0


def test_two_groups_become_one_while_their_pairs_are_near() -> None:
    """Average linkage, the naive way."""
    generator = np.random.default_rng(1)
    rows = unit(np.repeat(generator.normal(size=(5, DIM)), 6, axis=0) + 0.35 * generator.normal(size=(30, DIM)))
    distance = 1 - rows @ rows.T
    for width in (0.02, 0.1, 0.3, 0.8, 2.0):
        groups = [[row] for row in range(30)]
        while len(groups) > 1:
            apart, a, b = min(
                (float(distance[np.ix_(x, y)].mean()), i, j)
                for i, x in enumerate(groups)
                for j, y in enumerate(groups)
                if i < j
            )
            if apart > width:
                break
            groups = [g for place, g in enumerate(groups) if place not in (a, b)] + [groups[a] + groups[b]]
        found = group_alike(rows, width)
        assert set(map(frozenset, found)) == set(map(frozenset, groups))
        assert list(map(len, found)) == sorted(map(len, groups), reverse=True)
        for group in found:
            centre = rows[group].mean(axis=0)
            assert np.all(np.diff(rows[group] @ centre) <= 1e-6), "the most typical first"
    assert group_alike(rows[:0], 0.5) == []
    assert group_alike(rows[:1], 0.5) == [[0]]


def test_very_many_strangers_join_the_groups_of_a_sample() -> None:
    generator = np.random.default_rng(2)
    of = np.arange(2 * MOST_LINKED + 5) % 4  # every third is in the sample
    rows = unit(generator.normal(size=(4, DIM))[of] + 0.05 * generator.normal(size=(len(of), DIM)))
    assert {frozenset(of[group]) for group in group_alike(rows, 0.2)} == {frozenset([kind]) for kind in range(4)}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(pictured(tmp_path))


def asked(run: RunDirectory, folder: Path, names: list[str], strange: dict[str, list[int]]) -> Page:
    """The page of images that are called so and predicted as the run's own, but for strangers in some directions."""
    found = Discovery.read(run.folder)
    rows = read_embedding(run, len(found.members))[: len(names)]
    generator = np.random.default_rng(5)
    members = []
    for place, name in enumerate(names):
        save_image(folder / "image.png").rename(folder / name)
        like = found.members[place]
        members.append(Member(name, None, like.category, like.is_new, 0.9 - 0.01 * place, 0.5, like.category_id))
    for places in strange.values():
        rows[places] = unit(generator.normal(size=DIM) + 0.01 * generator.normal(size=(len(places), DIM)))
        for place in places:
            members[place] = members[place]._replace(unlike=1.5 + 0.01 * place)
    table = table_below(folder, names, [None] * len(names))
    return page_of_predictions(run, members, rows, table, [Skipped("torn.jpg", "torn")], ["a week/", "b", "c", "d"])


def test_images_are_in_their_categories_and_strangers_in_groups(run: RunDirectory, tmp_path: Path) -> None:
    Discovery.read(run.folder).rename("new-1", "owl")
    names = [f"{place}.png" for place in range(20)]  # of cat and dog six each, of new-1 (now owl) six, of new-2 two
    page = asked(run, tmp_path, names, {"one": [1, 8, 14], "two": [5], "three": [9, 10]})
    assert {row.name: row.size for row in page.categories} == {"cat": 4, "dog": 3, "owl": 5, "new-2": 2}
    assert [(row.name, row.size) for row in page.strangers] == [
        ("strangers 1", 3), ("strangers 2", 2), ("like no other", 1),
    ]  # fmt: skip
    captions = [[image.caption for image in (*row.most, *row.others, *row.least)] for row in page.strangers]
    assert [sorted(group) for group in captions] == [["1.png", "14.png", "8.png"], ["10.png", "9.png"], ["5.png"]]
    assert [row.unlike for row in page.strangers] == pytest.approx([1.58, 1.595, 1.55])
    assert page.strangers[0].nearest
    assert not page.strangers[-1].nearest
    assert page.title == "14 images in 4 categories"
    text = Document(render(page)).text
    assert "and 6 images unlike every category, as predicted by" in text
    assert f"newkinds update {run.folder} 'a week/' b c …" in text
    assert "torn.jpg" in text
    assert "assignments.csv" not in text
    assert "skipped.csv" not in text


def test_no_strangers_and_nothing_but_strangers(run: RunDirectory, tmp_path: Path) -> None:
    calm = asked(run, tmp_path, ["a.png", "b.png"], {})
    assert (calm.strangers, len(calm.categories)) == ([], 1)
    strange = asked(run, tmp_path, ["c.png", "d.png"], {"one": [0, 1]})
    assert (strange.categories, strange.title) == ([], "0 images in 0 categories")
    assert "No image was assigned to a category" in Document(render(strange)).text
    nothing = asked(run, tmp_path, [], {})
    assert "torn.jpg" in Document(render(nothing)).text


def test_junk_and_what_a_person_decided(run: RunDirectory, tmp_path: Path) -> None:
    found = Discovery.read(run.folder)
    found.junk(category="new-4")
    save_image(tmp_path / "x.png")
    rows = read_embedding(run, len(found.members))[:2]
    members = [
        Member("x.png", None, "(junk)", False, 0.9, 0.2, -1),
        Member("x.png", None, "cat", False, 0.4, 3.0, 0, "accepted"),
    ]
    page = page_of_predictions(run, members, rows, table_below(tmp_path, ["x.png"] * 2, [None] * 2), [], ["x.png"])
    assert [(row.name, row.size) for row in page.categories] == [("cat", 1), ("(junk)", 1)]
    assert page.strangers == [], "somebody has said where it belongs"


def test_names_stay_text_and_links_lead_somewhere(run: RunDirectory, tmp_path: Path) -> None:
    names = [name for name in HOSTILE if "/" not in name and len(name.encode("utf-8", "surrogateescape")) < 250]
    pages = []
    for number, chosen in enumerate((names, [f"calm-{place}.png" for place in range(len(names))])):
        (tmp_path / str(number)).mkdir()
        pages.append(render(asked(run, tmp_path / str(number), chosen, {"one": [0, 1, 2, 3]})))
    document, calm = map(Document, pages)
    assert [tag for tag, _ in document.elements] == [tag for tag, _ in calm.elements]
    assert document.scripts == calm.scripts
    ids = [attributes["id"] for _, attributes in document.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {(link["href"] or "")[1:] for link in document.all("a")} <= set(ids)


def test_of_very_many_images_a_sample_is_shown(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_images, "MOST_PICTURES", 14)
    monkeypatch.setattr(page_images, "ENDS", 1)
    names = [f"{place}.png" for place in range(36)]
    page = asked(run, tmp_path, names, {"one": [*range(12, 18)]})
    assert sum(row.shown for row in page.categories) < sum(row.size for row in page.categories) == 30
    assert page.strangers[0].shown == 6, "all that are in doubt"
    assert re.search(r"An even sample, from certain to uncertain\.", render(page))
