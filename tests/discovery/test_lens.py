"""predict, eval and count look through what people corrected."""

import shutil
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from conftest import save_image
from discovered import discovered
from newkinds import Discovery, count_categories, discover, evaluate, load
from newkinds.discovery.edits import JUNK
from newkinds.discovery.lens import Lens
from newkinds.discovery.split import read_embedding
from newkinds.runs.directory import RunDirectory


def test_images_never_seen_follow_merges_splits_and_junk_in_their_order(tmp_path: Path) -> None:
    run = discovered(tmp_path / "run")
    found = Discovery.read(run)
    found.merge(["new-1", "new-2"])  # 2 and 3 are 2
    found.split("new-1", 3)  # … and 2, 6, 7
    found.merge(["new-1-2", "cat"])  # 6 is 0
    found.split("new-3")  # 4 and 8
    found.junk(category="new-3-2")  # 8 is junk
    own = read_embedding(RunDirectory(run), len(found.members))
    lens = Lens(found, lambda: own)
    # an image's own category is that of the part whose images it is nearest to, and it is one of them
    was = np.array([member.category_id for member in found.found_members])
    assert lens.shown(was, own).tolist() == [member.category_id for member in found.members]

    rows = np.random.default_rng(1).normal(size=(50, own.shape[1])).astype(np.float32)
    category = np.random.default_rng(2).integers(6, size=50)
    centres = {}
    for edit in found.corrections().in_force:
        for part in edit.get("parts", ()):
            mean = own[[i for i, m in enumerate(found.members) if m.path in part["images"]]].mean(axis=0)
            centres[edit["n"], part["id"]] = mean / np.linalg.norm(mean)
    naive = []
    for row, c in zip(rows, category.tolist(), strict=True):
        c = 2 if c == 3 else c
        if c == 2:
            c = max((2, 6, 7), key=lambda part, row=row: row @ centres[2, part])
        c = 0 if c == 6 else c
        if c == 4:
            c = max((4, 8), key=lambda part, row=row: row @ centres[4, part])
        naive.append(JUNK if c == 8 else c)
    assert lens.shown(category, rows).tolist() == naive


@pytest.fixture(scope="module")
def sorted_photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two known colours and two new ones, in slightly different shades."""
    root = tmp_path_factory.mktemp("photos")
    colours = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "white": (220, 220, 220)}
    for name, colour in colours.items():
        for i in range(8):
            folder = root / (name if name in ("red", "green") and i < 4 else "unlabeled")
            folder.mkdir(exist_ok=True)
            save_image(folder / f"{name}-{i}.png", tuple(min(255, c + 3 * i) for c in colour))
    return root


@pytest.fixture(scope="module")
def finished(sorted_photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "photos"
    discover(sorted_photos, run, backbone="tiny", method="gcd", epochs=0, k=4, settings={"method": {"output_dim": 64}})
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_predictions_have_the_names_and_ids_that_people_gave(run: Path, sorted_photos: Path) -> None:
    images = sorted((sorted_photos / "unlabeled").glob("*.png"))
    before = {Path(p.path).name: p for p in load(run).predict(images)}
    found = Discovery.read(run)
    first, second = found.new
    (one, two, moved), (other, thrown, *_) = (
        [name for name, p in before.items() if p.category_id == category.id][:3] for category in (first, second)
    )
    found.rename(first.id, "sky")
    found.merge(["sky", second.name], into="sky")
    found.move([moved], "red")
    found.junk([thrown])
    after = {Path(p.path).name: p for p in load(run).predict(images)}
    assert {after[name].category for name in (one, two, other)} == {"sky"}
    assert {after[name].category_id for name in (one, two, other)} == {first.id}
    assert after[moved].category == "red"  # a person's word about this very image
    assert not after[moved].is_new
    assert after[thrown].category_id == JUNK
    assert after[other].confidence == before[other].confidence


def test_eval_judges_what_people_made_of_it(run: Path, sorted_photos: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    images = sorted((sorted_photos / "unlabeled").glob("*.png"))
    truth.write_text("path,label\n" + "".join(f"unlabeled/{p.name},{p.name.split('-')[0]}\n" for p in images))
    before = evaluate(run, truth)
    assert before["as_found"] is None
    found = Discovery.read(run)
    unlabelled = [m.path for m in found.members if m.given_label is None]
    wrong = unlabelled[: len(unlabelled) // 2]
    found.move(wrong, "red")
    found.junk(unlabelled[-2:])
    after = evaluate(run, truth)
    assert after["as_found"] == before["metrics"]
    judged = [m for m in found.members if m.given_label is None and m.status != "junk"]
    kinds = sorted({Path(m.path).name.split("-")[0] for m in judged})
    table = np.zeros((4, 4))
    for m in judged:
        table[m.category_id, kinds.index(Path(m.path).name.split("-")[0])] += 1
    best = max(sum(table[c, k] for c, k in enumerate(match)) for match in permutations(range(4)))
    assert after["metrics"]["acc_all"] == pytest.approx(best / len(judged))
    assert after["metrics"] != before["metrics"]
    assert after["evaluated"] == before["evaluated"] - 2
    assert "2 corrections by hand" in after["protocol"]["evaluated"]


def test_count_takes_peoples_word_as_labels_and_leaves_junk_out(run: Path, monkeypatch) -> None:
    from newkinds.cluster.count import COUNTERS

    seen = {}
    real = COUNTERS["ward"]

    def ward(features, labels, published_truth=None):
        seen.update(rows=len(features), labels=list(labels))
        return real(features, labels)

    monkeypatch.setitem(COUNTERS._entries, "ward", ward)
    found = Discovery.read(run)
    count_categories(run, by="ward")
    assert seen["labels"].count(-1) == 24
    new = found.new[0]
    found.accept(category=new.id)
    found.junk([next(m.path for m in found.members if m.given_label is None and m.category_id != new.id)])
    count_categories(run, by="ward")
    assert seen["rows"] == 31
    accepted = [m for m in found.members if m.status == "accepted" and m.given_label is None]
    assert seen["labels"].count(-1) == 24 - len(accepted) - 1
    assert new.id in seen["labels"]
