"""After updates the other verbs keep the same promise: names, moves, accepts and junk stay with their images."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import newkinds
from growing import Kinds, write_vectors
from newkinds import Discovery
from newkinds.discovery.edits import POOL
from newkinds.discovery.kinds import Member
from newkinds.runs.changes import UpdateHistory
from newkinds.runs.run import Run

SETTINGS = {"train": {"epochs": 0}}


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has grown by a category and two images that are not placed yet, and was corrected after that."""
    folder, kinds = tmp_path_factory.mktemp("grown"), Kinds()
    x, labels = write_vectors(folder, kinds, present=8, known=5)
    found = newkinds.discover(x, folder / "run", labels=str(labels), k=8, settings=SETTINGS, page=False)
    found.rename("new-1", "heron")
    np.save(folder / "more.npy", kinds.draw({0: 3, 12: 10, 13: 2}))
    found = newkinds.update(folder / "run", folder / "more.npy", page=False)
    opened = found.category("new-4")
    assert len(found.pool) >= 2
    found.rename(opened.id, "swift")
    found.accept([opened.exemplars[0]])
    found.move([opened.exemplars[1]], "heron")
    found.junk([opened.exemplars[2]])
    found.move([found.pool[0].path], "heron")
    return folder


@pytest.fixture
def run(grown: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(grown / "run", tmp_path / "run"))


def decided(members: list[Member]) -> dict[str, tuple[str, bool]]:
    """Image → the name of its category and whether it is junk, of those that people decided about."""
    return {m.path: (m.category, m.status == "junk") for m in members if m.status}


def keeps(before: list[Member], after: Discovery) -> None:
    now = {member.path: (member.category, member.status == "junk") for member in after.members}
    assert {path: now[path] for path in decided(before)} == decided(before)
    for name in ("heron", "swift"):
        own = {m.path for m in before if m.category == name}
        kept = {m.path for m in after.members if m.category == name}
        assert 2 * len(own & kept) > len(own)


@pytest.mark.parametrize("how", ["discover", "assign"])
def test_categories_that_are_found_again(how: str, run: Path, grown: Path, tmp_path: Path) -> None:
    before = Discovery.read(run).members
    if how == "discover":
        folder = Path(shutil.copytree(grown, tmp_path / "grown"))
        x, labels = folder / "x.npy", folder / "labels.csv"
        np.save(x, np.concatenate([np.load(x), Kinds().draw({2: 1})]))  # so that there is something to do
        labels.write_text(labels.read_text() + ",kind 02\n")
        after = newkinds.discover(x, run, labels=str(labels), k=9, settings=SETTINGS, page=False)
    else:
        after = newkinds.assign(run, "sskmeans", page=False)
    assert {m.path for m in after.members} >= {m.path for m in before}  # those from elsewhere, too
    keeps(before, after)
    assert not after.pool  # whoever finds all categories again places every image
    assert UpdateHistory.of(Run(run)).last is None  # ids begin anew, and so does their history


def test_refining_into_a_run_of_its_own(run: Path, tmp_path: Path) -> None:
    before = Discovery.read(run)
    said = decided(before.members)
    after = newkinds.refine(run, tmp_path / "refined", time="30s")
    now = {member.path: member for member in after.members}
    junk = {path for path, (_, is_junk) in said.items() if is_junk}
    assert {m.path for m in before.members} - now.keys() == junk
    assert all(now[path].category == name for path, (name, is_junk) in said.items() if not is_junk)
    assert {c.name for c in after.categories if c.size} >= {"heron", "swift"}
    for member in before.pool:
        assert now[member.path].category_id == POOL or now[member.path].unlike <= 1


def test_the_same_discover_again_says_that_it_is_finished(
    run: Path, grown: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = str(grown / "labels.csv")
    before = Discovery.read(run)
    after = newkinds.discover(grown / "x.npy", run, labels=labels, k=8, settings=SETTINGS, page=False)
    said = capsys.readouterr().err
    assert "is finished already, with update 1" in said
    assert f"newkinds update {run} --time 10m" in said
    assert [m.category_id for m in after.members] == [m.category_id for m in before.members]


def test_a_grown_folder_is_told_of_update(grown: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = Kinds()
    x, labels = write_vectors(tmp_path, kinds, present=6, known=4)
    newkinds.discover(x, tmp_path / "run", labels=str(labels), k=6, settings=SETTINGS, page=False)
    np.save(x, np.concatenate([np.load(x), kinds.draw({2: 2})]))
    labels.write_text(labels.read_text() + ",kind 02\n,kind 02\n")
    newkinds.discover(x, tmp_path / "run", labels=str(labels), k=6, settings=SETTINGS, page=False)
    assert f"newkinds update {tmp_path / 'run'}" in capsys.readouterr().err
