"""`newkinds update`: what came later goes into the categories of a run, and nothing else changes."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import newkinds
from growing import Kinds, write_vectors
from newkinds import Discovery
from newkinds.discovery.edits import POOL
from newkinds.discovery.finished import read_features
from newkinds.errors import NewkindsError
from newkinds.runs.changes import UpdateHistory
from newkinds.runs.run import Run


@pytest.fixture(scope="module")
def kinds() -> Kinds:
    return Kinds()


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, kinds: Kinds) -> Path:
    """A run of twelve kinds, six of them known, named and corrected."""
    folder = tmp_path_factory.mktemp("begun")
    x, labels = write_vectors(folder, kinds)
    found = newkinds.discover(x, folder / "run", labels=str(labels), k=12, settings={"train": {"epochs": 0}})
    assert len(found.categories) == 12
    found.rename("new-1", "heron")
    found.rename("new-2", "owl")
    found.merge(["new-3", "new-4"])
    found.undo()
    found.move([found.category("heron").exemplars[-1]], "owl")
    found.accept(category="new-5")
    found.junk([found.category("new-6").exemplars[-1]])
    return folder


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(begun / "run", tmp_path / "run"))


def more(tmp_path: Path, vectors: np.ndarray, name: str = "more.npy") -> Path:
    np.save(tmp_path / name, vectors)
    return tmp_path / name


def shown(found: Discovery) -> dict[str, tuple[int, str, str, float, float]]:
    return {m.path: (m.category_id, m.category, m.status, m.confidence, m.unlike) for m in found.members}


def kind_of(found: Discovery, begun: Path) -> dict[int, int]:
    """Category → the kind of most of its images that were there from the start."""
    counts: dict[int, Counter[int]] = {}
    for row, member in enumerate(m for m in found.members if m.since == 0):
        counts.setdefault(member.category_id, Counter())[row // 12] += 1
    return {number: counter.most_common(1)[0][0] for number, counter in counts.items()}


def test_a_week_later_all_that_was_named_and_corrected_stays(
    run: Path, begun: Path, kinds: Kinds, tmp_path: Path
) -> None:
    before = Discovery.read(run)
    features, was, log = read_features(Run(run)), shown(before), before.log()
    came = kinds.draw({**dict.fromkeys(range(12), 5), 12: 20, 13: 20})  # 100, of which 40 of two kinds never seen
    after = newkinds.update(run, more(tmp_path, came))

    now = shown(after)
    assert {path: now[path] for path in was} == was  # ids, names, corrections, and how sure all that is
    assert torch.equal(read_features(Run(run))[: len(was)], features)
    assert after.log() == log
    later = [member for member in after.members if member.since == 1]
    assert [m.path for m in later] == [f"{tmp_path / 'more.npy'} row-{row:05d}" for row in range(100)]
    right, placed = kind_of(after, begun), [m for m in later[:60] if m.category_id != POOL]
    assert len(placed) >= 58
    truth = np.repeat(np.arange(12), 5)
    assert all(right[m.category_id] == truth[later.index(m)] for m in placed)
    opened = [category for category in after.categories if category.id >= 12]
    assert [(c.id, c.name, c.is_new) for c in opened] == [(12, "new-7", True), (13, "new-8", True)]
    strangers = [Counter(m.category_id for m in later[60:80]), Counter(m.category_id for m in later[80:])]
    assert {counter.most_common(1)[0][0] for counter in strangers} == {12, 13}
    assert all(counter.most_common(1)[0][1] >= 18 for counter in strangers)

    [record] = UpdateHistory.of(Run(run)).updates
    assert (record.number, record.came, record.pool, record.next_id) == (1, 100, len(after.pool), 14)
    assert {o.id: o.size for o in record.opened} == {c.id: c.size for c in opened}
    assert sum(record.placed.values()) == 100 - record.pool
    assert record.evidence is not None
    assert record.evidence.false <= 0.05 * record.evidence.openings
    assert shown(Discovery.read(run / record.earlier)) == was

    after.undo()  # the log goes on where it was
    assert Discovery.read(run).log()[-1][0]["says"].startswith("undo: junked")
    # images never seen go to the opened ones, too, in predict and in the next update
    again = more(tmp_path, kinds.draw({12: 4, 3: 4, 13: 4}), "again.npy")
    predicted = [p.category_id for p in newkinds.load(run).predict([again])]
    assert (set(predicted[:4]), set(predicted[8:])) == ({12}, {13}) or set(predicted[:4]) == {13}
    third = newkinds.update(run, again)
    assert [m.category_id for m in third.members if m.since == 2] == predicted
    assert len(third.categories) == 14


def test_a_few_strangers_wait_until_there_are_enough(run: Path, kinds: Kinds, tmp_path: Path) -> None:
    found = newkinds.update(run, more(tmp_path, kinds.draw({12: 3})))
    assert len(found.pool) == 3
    assert len(found.categories) == 12
    assert all(m.model_category_id in range(12) and m.unlike > 1 for m in found.pool)
    found.move([found.pool[0].path], "heron")
    found = newkinds.update(run, more(tmp_path, kinds.draw({12: 9}), "second.npy"))
    [opened] = [c for c in found.categories if c.id >= 12]
    assert (opened.size, len(found.pool)) == (11, 0)  # one is where a person put it
    assert Counter(m.since for m in found.members if m.category_id == 12) == {1: 2, 2: 9}


def test_nothing_new_writes_nothing(run: Path, begun: Path, kinds: Kinds, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    files = {file: file.stat().st_mtime_ns for file in run.iterdir() if not file.name.startswith(".")}
    newkinds.update(run)
    same = np.load(begun / "x.npy")[[3, 40]]
    newkinds.update(run, more(tmp_path, same))
    said = capsys.readouterr().err
    assert "nothing new" in said
    assert "2 there already, by content" in said
    assert "more.npy row-00000 shows the same as row-00003, and 1 more" in said
    assert {file: file.stat().st_mtime_ns for file in run.iterdir() if not file.name.startswith(".")} == files


def test_an_update_is_undone_whole_and_its_ids_are_not_used_again(
    run: Path, kinds: Kinds, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Discovery.read(run)
    was = shown(before)
    found = newkinds.update(run, more(tmp_path, kinds.draw({2: 6, 12: 12})))
    assert found.categories[-1].id == 12
    found.rename("heron", "grey heron")
    found.rename(12, "swift")
    found.move([member.path for member in found.members if member.since == 1][:1], "owl")
    found.accept([found.members[0].path])
    capsys.readouterr()
    back = newkinds.undo_update(run)
    assert capsys.readouterr().err.startswith("update 1 is undone: ")
    assert back.category("grey heron").id == next(n for n, name, *_ in was.values() if name == "heron")
    assert back.members[0].status == "accepted"
    rest = {path: entry for path, entry in shown(back).items() if path != back.members[0].path}
    assert {p: (e[0], *e[2:]) for p, e in rest.items()} == {p: (was[p][0], *was[p][2:]) for p in rest}
    [undone] = UpdateHistory.of(Run(run)).updates
    assert undone.undone
    with pytest.raises(NewkindsError, match="has no update that could be undone"):
        newkinds.undo_update(run)
    again = newkinds.update(run, tmp_path / "more.npy")
    assert [(c.id, c.name) for c in again.categories if c.id >= 12] == [(13, "new-8")]
    assert {m.since for m in again.members} == {0, 2}


@pytest.mark.parametrize(
    ("vectors", "said"),
    [(np.ones((3, 5), np.float32) * np.arange(1, 4)[:, None], "vectors of 5 numbers"), (None, "there is no file")],
)
def test_what_cannot_be_added_is_said(vectors: np.ndarray | None, said: str, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "no.npy" if vectors is None else more(tmp_path, vectors)
    with pytest.raises(NewkindsError, match=said):
        newkinds.update(run, file)
    assert not UpdateHistory.of(Run(run)).updates


def test_two_updates_at_once_are_one(run: Path, kinds: Kinds, tmp_path: Path) -> None:
    with Run(run).claimed(), pytest.raises(NewkindsError, match=r"another process is .* wait for it, then update"):
        newkinds.update(run, more(tmp_path, kinds.draw({1: 2})))


def test_no_run_becomes_a_folder(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="not a run directory"):
        newkinds.update(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_better_model_keeps_ids_names_and_decisions(run: Path, kinds: Kinds, tmp_path: Path) -> None:
    newkinds.update(run, more(tmp_path, kinds.draw({12: 12, 3: 6})))
    found = Discovery.read(run)
    found.rename(12, "swift")
    found.move([found.category("swift").exemplars[-1]], "heron")  # a person may err, and is obeyed
    found.merge(["new-3", "new-4"])
    was = {m.path: m for m in found.members}
    ids = {c.name: c.id for c in found.categories}
    after = newkinds.update(run, more(tmp_path, kinds.draw({12: 3, 5: 3}), "second.npy"), time="30s", page=False)
    record = UpdateHistory.of(Run(run)).updates[-1]
    assert {c.name: c.id for c in after.categories} == ids
    assert all(
        m.category_id == was[m.path].category_id and m.status in ("moved", "accepted")  # if the model has learnt it
        for m in after.members
        if m.path in was and was[m.path].status == "moved"
    )
    assert {m.path for m in after.members if m.status == "junk"} == {p for p, m in was.items() if m.status == "junk"}
    assert {m.path for m in after.members if m.status == "accepted"} >= {
        path for path, member in was.items() if member.status == "accepted"
    }
    assert {m.since for m in after.members} == {0, 1, 2}
    assert record.better_model
    assert newkinds.load(run).model.categories == len(ids)  # what was opened is part of it
    assert not (run / ".refined").exists()
    third = newkinds.update(run, more(tmp_path, kinds.draw({12: 2, 13: 9}), "third.npy"), page=False)
    assert third.categories[-1].id == max(c.id for c in third.categories) == 13
    newkinds.undo_update(run, page=False)
    back = newkinds.undo_update(run, page=False)
    assert {m.path: (m.category_id, m.status) for m in back.members} == {
        p: (m.category_id, m.status) for p, m in was.items()
    }
