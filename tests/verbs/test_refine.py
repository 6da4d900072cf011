"""A run learns from what people corrected, and undoes none of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import newkinds
from conftest import Killed, save_image
from newkinds.assigners.em import EM
from newkinds.assigners.whitening import Whitening
from newkinds.data import load_table
from newkinds.data.corrections import Correction, corrected_names, corrections_text, read_corrections
from newkinds.discovery.categories import Discovery
from newkinds.discovery.finished import LoadedRun, load
from newkinds.errors import NewkindsError
from newkinds.runs.run import Run
from newkinds.search.folds import Fold, Lessons
from newkinds.search.ways import Way

CREATURES = {"data": {"categories": 8, "per_category": 12}}
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def found_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four known kinds and four new ones, from frozen features."""
    out = tmp_path_factory.mktemp("found") / "run"
    newkinds.discover("creatures", out, method="frozen", assigner="sskmeans", settings=CREATURES)
    return out


@pytest.fixture
def run(found_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(found_once, tmp_path / "run"))


def inside(found: Discovery, name: str) -> list[str]:
    return [member.path for member in found.members if member.category == name]


def category_of(found: Discovery) -> dict[str, str]:
    return {member.path: member.category for member in found.members}


def record(run: Path) -> dict:
    return Run(run).read_json("refined.json")


def by_size(found: Discovery) -> list[str]:
    return [category.name for category in found.new]


# -- what people said ------------------------------------------------------------------------------------------------


def test_accepted_and_moved_images_become_labels(run: Path) -> None:
    found = Discovery.read(run)
    first, second, *_ = by_size(found)
    known = found.known[0].name
    unlabelled = [m for m in found.members if m.given_label is None]
    accepted = inside(found, first)
    moved = [m.path for m in unlabelled if m.category not in (first, known)][:3]
    labelled = {m.path: m.given_label for m in found.members if m.given_label is not None}
    found.rename(first, "snail")
    found.accept(category="snail")
    found.move(moved, known)
    refined = newkinds.refine(run)
    assert refined.run == run.with_name("run-refined")
    table = load_table(Run(refined.run).config().data)
    labels = {path: label for path, label in zip(table.paths, table.labels, strict=True) if label is not None}
    assert labels == {**labelled, **dict.fromkeys(accepted, "snail"), **dict.fromkeys(moved, known)}
    assert table.known == [*(c.name for c in found.known), "snail"]
    assert load(refined.run).model.known == table.known
    assert [c.name for c in refined.categories if not c.is_new] == table.known
    assert second in by_size(refined)  # what nobody said anything about keeps its name
    assert record(refined.run)["labels"] == {"before": len(labelled), "after": len(labels)}
    settings = Run(refined.run).settings()["data"]
    assert settings["refines"] == str(run.resolve())
    assert len(refined.categories) == len(found.categories) == Run(refined.run).config().k


def test_a_decision_stays_whatever_the_model_says(run: Path) -> None:
    """Images are put where they look wrong: the model disagrees, and is overruled."""
    found = Discovery.read(run)
    first, known = by_size(found)[0], max(found.known, key=lambda category: category.size).name
    wrong = inside(found, first)[:2]  # the others of their kind stay where they are
    junk = inside(found, first)[2]
    found.move(wrong, known)
    found.junk([junk])
    refined = newkinds.refine(run)
    now = category_of(refined)
    assert [now[path] for path in wrong] == [known] * 2
    assert junk not in now
    assert next(s for s in refined.skipped if s.path == junk).reason == "junk by hand"
    again = Discovery.read(refined.run)
    assert {m.path: m.status for m in again.members if m.status} == dict.fromkeys(wrong, "accepted")


def test_merged_categories_are_one_even_if_they_are_unlike(run: Path) -> None:
    found = Discovery.read(run)
    one, other, third, *_ = by_size(found)
    both = {one: inside(found, one), other: inside(found, other)}
    found.merge([one, other])
    refined = newkinds.refine(run)
    name = found.category(one).name
    assert len(refined.categories) == len(found.found_categories) - 1
    now = category_of(refined)
    for paths in both.values():  # each half stays, not only the larger one
        assert np.mean([now[path] == name for path in paths]) > 0.7
    assert other not in {c.name for c in refined.categories}
    ids = record(refined.run)["ids"]
    old = {c.name: c.id for c in found.found_categories}
    assert ids[str(old[one])] == ids[str(old[other])] == refined.category(name).id
    assert ids[str(old[third])] == refined.category(third).id


def test_a_split_is_not_undone(run: Path) -> None:
    """Two kinds are made one, and then two again: refining has to keep them apart."""
    found = Discovery.read(run)
    one, other, *_ = by_size(found)
    parts = [inside(found, one), inside(found, other)]
    found.merge([one, other], into=one)
    found.split(one, parts=parts)
    assert len(found.categories) == len(found.found_categories)
    refined = newkinds.refine(run)
    first, second = (next(c.name for c in found.categories if c.id == i) for i in (
        found.members[[m.path for m in found.members].index(parts[0][0])].category_id,
        found.members[[m.path for m in found.members].index(parts[1][0])].category_id,
    ))  # fmt: skip
    assert first != second
    now = category_of(refined)
    assert np.mean([now[path] == first for path in parts[0]]) > 0.7
    assert np.mean([now[path] == second for path in parts[1]]) > 0.7
    assert not any(m.status for m in refined.members)  # a split decides about no single image


def test_labels_of_a_class_go_with_its_parts(run: Path) -> None:
    found = Discovery.read(run)
    fits = [m for m in found.members if m.given_label == m.category]
    known = max(found.known, key=lambda category: sum(m.category == category.name for m in fits)).name
    labelled = [m.path for m in fits if m.category == known]
    rest = [m.path for m in found.members if m.category == known and m.path not in labelled[:2]]
    assert len(labelled) > 3
    found.split(known, parts=[rest, labelled[:2]])
    refined = newkinds.refine(run)
    given = {m.path: m.given_label for m in refined.members}
    assert [given[path] for path in labelled] == [f"{known}-2"] * 2 + [known] * (len(labelled) - 2)
    assert {known, f"{known}-2"} <= {c.name for c in refined.known}


def test_a_class_that_is_junk_is_no_class(run: Path) -> None:
    found = Discovery.read(run)
    gone = found.known[1].name
    elsewhere = [m.path for m in found.members if m.given_label == gone and m.category != gone]
    found.junk(category=gone)
    refined = newkinds.refine(run)
    assert gone not in {c.name for c in refined.categories}
    assert {m.path: m.given_label for m in refined.members if m.path in elsewhere} == dict.fromkeys(elsewhere)
    assert record(refined.run)["ids"]["1"] is None


def test_nothing_to_learn_from(run: Path, run_cli: Cli) -> None:
    status, _, error = run_cli("refine", run)
    assert (status, "nothing was corrected" in error) == (1, True)
    found = Discovery.read(run)
    found.rename(by_size(found)[0], "snail")
    with pytest.raises(NewkindsError, match="only names were given"):
        newkinds.refine(run)
    found.merge(by_size(found)[:2])
    found.undo()
    with pytest.raises(NewkindsError, match="nothing to learn from"):
        newkinds.refine(run)
    assert not run.with_name("run-refined").exists()


# -- the run that it writes ------------------------------------------------------------------------------------------


def test_it_says_what_changed(run: Path, run_cli: Cli) -> None:
    found = Discovery.read(run)
    one, other, *_ = by_size(found)
    before = category_of(found)
    found.merge([one, other])
    found.accept([inside(found, one)[0]])
    status, text, _ = run_cli("refine", run, "--out", run.with_name("better"))
    assert status == 0
    refined = Discovery.read(run.with_name("better"))
    said, now = record(refined.run), category_of(refined)
    changed = {path for path, name in before.items() if now[path] != (one if name == other else name)}
    assert said["changed"] == len(changed)
    assert {entry["path"] for entry in said["surest_changes"]} <= changed
    assert {c["name"]: c["after"] for c in said["sizes"]} == {c.name: c.size for c in refined.categories}
    assert f"images      {len(changed)} of {len(now)} changed" in text
    assert f"{len(found.found_categories)} → {len(refined.categories)}, known ones 4 → 5" in text
    assert "of 1 images that you decided about" in text


def test_the_run_itself_is_not_changed(run: Path) -> None:
    found = Discovery.read(run)
    found.merge(by_size(found)[:2])
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    newkinds.refine(run)
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
    with pytest.raises(NewkindsError, match="is the run itself"):
        newkinds.refine(run, out=run)


def test_later_corrections_go_into_another_folder(run: Path) -> None:
    found = Discovery.read(run)
    found.merge(by_size(found)[:2])
    first = newkinds.refine(run)
    content = (first.run / "assignments.csv").read_bytes()
    assert newkinds.refine(run).run == first.run  # the same corrections: nothing is done again
    found.junk([found.members[0].path])
    assert newkinds.refine(run).run == run.with_name("run-refined-2")
    assert (first.run / "assignments.csv").read_bytes() == content
    with pytest.raises(NewkindsError, match="other corrections"):
        newkinds.refine(run, out=first.run)
    (run.with_name("mine")).mkdir()
    (run.with_name("mine") / "letter.txt").write_text("dear")
    with pytest.raises(NewkindsError, match="not empty"):
        newkinds.refine(run, out=run.with_name("mine"))


def test_a_refined_run_can_be_moved_judged_corrected_and_refined_again(run: Path, run_cli: Cli) -> None:
    found = Discovery.read(run)
    one, other, third, *_ = by_size(found)
    out = inside(found, third)[0]
    found.junk([out])
    found.merge([one, other])
    halves = inside(Discovery.read(run), one)
    moved = Path(newkinds.refine(run).run.rename(run.with_name("elsewhere")))
    assert run_cli("eval", moved)[0] == 0
    assert run_cli("report", moved)[0] == 0
    other_way = newkinds.assign(moved, "ward", out=run.with_name("ward"))  # a copy has its own corrections
    assert {m.path for m in other_way.members} == set(category_of(Discovery.read(moved)))
    assert Run(other_way.run).config().data["corrections"] == str(run.with_name("ward").resolve() / "corrections.csv")
    found = Discovery.read(moved)
    found.accept(inside(found, third)[:2])
    again = newkinds.refine(moved)
    assert out in {s.path for s in again.skipped}  # what was junk before stays out
    assert out not in category_of(again)
    now = category_of(again)
    assert np.mean([now[path] == one for path in halves]) > 0.7  # and what was merged before stays merged
    assert third in {c.name for c in again.known}


@pytest.mark.parametrize("moment", ["write_json", "show"])
def test_a_killed_refining_goes_on(run: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    found = Discovery.read(run)
    one, other, *_ = by_size(found)
    wrong = inside(found, one)[:2]
    found.move(wrong, other)
    expected = category_of(newkinds.refine(run, out=run.with_name("whole")))

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        if moment == "show":
            patched.setattr(LoadedRun, "_describe", die)
        else:
            write_json = Run.write_json
            patched.setattr(Run, "write_json", lambda self, name, content: (
                die() if name == "refined.json" else write_json(self, name, content)
            ))  # fmt: skip
        with pytest.raises(Killed):
            newkinds.refine(run)
    folder = run.with_name("run-refined")
    if (folder / "assignments.csv").is_file():  # whoever looks now sees no decision undone
        assert [category_of(Discovery.read(folder))[path] for path in wrong] == [other] * 2
    again = newkinds.refine(run)
    assert again.run == folder
    assert category_of(again) == expected
    assert len(again.log()) == len(Discovery.read(run.with_name("whole")).log())  # nothing is said twice


def test_images_never_seen_are_put_where_people_put_theirs(
    photos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Folders of files: an image that was deleted since, after it became junk, is no reason to stop."""
    run = tmp_path / "run"
    newkinds.discover(photos, run, k=3, method="frozen", assigner="sskmeans")
    found = Discovery.read(run)
    [blue] = by_size(found)
    found.rename(blue, "blue <b>")
    found.move([m.path for m in found.members if "blue" in m.path], "blue <b>")
    found.junk(["loose.png"])
    (photos / "loose.png").unlink()
    refined = newkinds.refine(run)
    new = save_image(tmp_path / "other.jpg", (40, 40, 200))
    [prediction] = newkinds.predict(refined.run, [new])
    assert (prediction.category, prediction.is_new) == ("blue <b>", False)
    (photos / "red" / "0.png").unlink()
    found.accept(["green/0.png"])
    with pytest.raises(NewkindsError, match=r"cannot be read any more, such as red/0.png"):
        newkinds.refine(run)
    save_image(photos / "red" / "0.png", (200, 40, 40))
    save_image(photos / "unlabeled" / "more.png", (40, 40, 200))
    (photos / "unlabeled" / "damaged.png").write_bytes(b"no image")  # which no update could add
    again = newkinds.refine(run)
    assert "unlabeled/more.png" not in {m.path for m in again.members}
    said = capfd.readouterr().err
    assert "1 image is not in" in said
    assert "such as unlabeled/more.png: left out here" in said


# -- parts -----------------------------------------------------------------------------------------------------------


def test_corrections_survive_being_written(tmp_path: Path) -> None:
    odd = ['a,"b".png', "line\nbreak.png", "bytes\udcff.png", "<script>.png", "../up.png", "‮.png", "back\\x41.png"]
    said = [Correction(path, "cat" if i % 2 else None, "moved", "c\udcaat", i % 3 - 1, i) for i, path in enumerate(odd)]
    file = tmp_path / "corrections.csv"
    file.write_text(corrections_text(said), encoding="utf-8")
    assert read_corrections(file) == said
    file.write_text(file.read_text(encoding="utf-8")[:-9], encoding="utf-8")
    with pytest.raises(NewkindsError, match="is damaged"):
        read_corrections(file)


def test_names_stand_by_their_ids_and_classes_nobody_saw_are_there_too() -> None:
    said = [
        Correction("a", "cat", "", "cat", 0, 0), Correction("b", "dog", "", "cat", 0, 0),  # no image was seen as a dog
        Correction("c", None, "", "new-1", 2, 5), Correction("d", None, "junk", "(junk)", -1, 5),
    ]  # fmt: skip
    assert corrected_names(said) == (["cat", "dog", "new-1"], 2)


def test_pieces_and_hidden_labels() -> None:
    said = [
        Correction("a", "cat", "", "cat", 0, 0),
        Correction("b", "cat", "moved", "cat", 0, 7),  # came from elsewhere
        Correction("c", None, "", "new", 1, 3), Correction("d", None, "", "new", 1, 4),  # two that were merged
        Correction("e", "cat", "", "new", 1, 3),  # its label says otherwise
    ]  # fmt: skip
    lessons = Lessons(said, np.array([0, 0, -1, -1, 0]), known=1, categories=2)
    pieces = lessons.pieces()
    assert pieces.of_image.tolist() == [0, -1, 1, 2, -1]
    assert pieces.category.tolist() == [0, 1, 1]
    assert lessons.decided.tolist() == [False, True, False, False, False]
    folds = [fold.hidden for fold in lessons.folds()]
    assert sorted(np.concatenate(folds).tolist()) == [0, 1, 4]
    assert lessons.hide(np.array([0])).pieces(hidden=np.array([0])).category.tolist() == [0, 1, 1]  # of labels alone


def test_a_hidden_label_is_judged_without_its_own_help() -> None:
    """A class of one image cannot be found again if that is hidden, however well it fits."""
    rows = torch.eye(3).repeat_interleave(4, dim=0)
    said = [Correction(f"{i}", None, "", f"{i // 4}", i // 4, i // 4) for i in range(12)]
    said[11] = Correction("11", "alone", "moved", "alone", 3, 2)
    labels = np.array([0, 0, -1, -1, 1, 1, -1, -1, 2, 2, -1, 3])
    lessons = Lessons(said, labels, known=4, categories=4)
    every = np.arange(12)
    way = Way("continued")
    assert lessons.find_again(rows, way, Fold(every, np.array([0, 8]))).tolist() == [True, True]
    assert lessons.find_again(rows, way, Fold(every, np.array([11]))).tolist() == [False]


def test_the_present_model_is_judged_without_what_is_hidden() -> None:
    """Labels of noise are found again about as often as chance would; in a space that was fitted with them, far more
    often."""
    classes, each, dim = 6, 15, 60
    rows = F.normalize(torch.randn(classes * each, dim, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = np.repeat(np.arange(classes), each)
    said = [Correction(f"{i}", f"{own}", "", f"{own}", own, own) for i, own in enumerate(labels.tolist())]
    lessons = Lessons(said, labels, known=classes, categories=classes)
    em = EM(dim, classes, classes, shrinkage=0.1)

    def space_of(rows: Tensor, cluster: Tensor, labels: Tensor) -> Whitening:
        inside = cluster >= 0
        return Whitening.of(*em.own_space_of(rows[inside], cluster[inside], labels[inside] >= 0))

    told = space_of(rows, torch.from_numpy(labels), torch.from_numpy(labels))
    honest, leaking = (
        np.mean([lessons.find_unlearnt(rows, space, fold).mean() for fold in lessons.folds()])
        for space in (space_of, lambda *_: told)
    )
    assert honest < 2 / classes < leaking


def test_what_fits_is_found_again_without_learning() -> None:
    rows = torch.eye(3).repeat_interleave(4, dim=0)
    said = [Correction(f"{i}", f"{i // 4}", "", f"{i // 4}", i // 4, i // 4) for i in range(12)]
    lessons = Lessons(said, np.arange(12) // 4, known=3, categories=3)
    for fold in lessons.folds():
        assert lessons.find_unlearnt(rows, lambda *_: None, fold).all()
