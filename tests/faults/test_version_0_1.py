"""Runs and caches that version 0.1 made still open. Those in `version_0_1/` were written by its code; what is left out
is the backbone, which the run did not train, and the tokens of the cache, which nobody reads any more."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import newkinds
from newkinds.data import load_table
from newkinds.encoders import weights
from newkinds.training.store import list_caches

KEPT = Path(__file__).parent / "version_0_1"
BUNDLED = Path(weights.__file__).parent / "bundled" / "tiny.safetensors"


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    run = Path(shutil.copytree(KEPT / "run", tmp_path / "old"))
    backbone = {f"encoder.backbone.network.{name}": tensor for name, tensor in load_file(BUNDLED).items()}
    with safe_open(KEPT / "head.safetensors", framework="pt") as head:
        about = head.metadata()
    save_file({**backbone, **load_file(KEPT / "head.safetensors")}, run / "model.safetensors", about)
    return run


def test_it_is_of_that_version() -> None:
    assert "newkinds 0.1.0" in (KEPT / "run" / "protocol.json").read_text()
    there = {file.name for file in (KEPT / "run").iterdir()}
    assert not there & {"checksums.txt", "embedding.safetensors", "described.json", "images.csv", "calibration.json"}
    assert sum(file.stat().st_size for file in KEPT.rglob("*")) < 200_000


def test_its_tables_are_read_and_corrected(old_run: Path) -> None:
    rows = list(csv.DictReader((KEPT / "run" / "assignments.csv").open()))
    found = newkinds.Discovery.read(old_run)
    assert [(m.path, m.category, m.given_label or "") for m in found.members] == [
        (row["path"], row["category"], row["given_label"]) for row in rows
    ]
    assert {c.name: c.size for c in found.new} == {"new-2": 8, "new-1": 7}
    found.rename("new-2", "later")
    found.split("new-1", into=2)  # by features alone: there is no embedding
    again = newkinds.Discovery.read(old_run)
    assert {c.name for c in again.new} == {"later", "new-1", "new-1-2"}
    assert sum(c.size for c in again.categories) == len(rows)


def test_it_predicts_what_it_found(old_run: Path, tmp_path: Path) -> None:
    table = load_table({"name": "creatures", "categories": 4, "per_category": 8})
    said = {row["path"]: row for row in csv.DictReader((KEPT / "run" / "assignments.csv").open())}
    newkinds.Discovery.read(old_run).rename("new-2", "later")
    for place in (0, 9, 20):
        table.open(place).save(tmp_path / "image.png")
        predicted = newkinds.predict(old_run, tmp_path / "image.png")[0]
        then = said[table.paths[place]]
        assert predicted.category == then["category"].replace("new-2", "later")
        assert predicted.confidence == pytest.approx(float(then["confidence"]), abs=2e-3)


def test_it_is_judged_as_it_was(old_run: Path) -> None:
    judged = newkinds.evaluate(old_run)
    assert judged["evaluated"] == 24
    assert judged["metrics"]["acc_all"] == pytest.approx(20 / 24)  # what version 0.1 said of it
    assert judged["metrics"]["nmi"] == pytest.approx(0.7581438437903346)


def test_its_page_is_made(old_run: Path) -> None:
    page = newkinds.report(old_run).read_text()
    assert "new-2" in page
    assert (old_run / "embedding.safetensors").is_file()  # by the model, once


def test_its_cache_is_listed_as_old(caches: Path) -> None:
    shutil.copytree(KEPT / "cache", caches)
    (folder,) = caches.iterdir()
    for number in range(3):
        (folder / f"view00{number}.tokens").write_bytes(bytes(32 * 65 * 96 * 2))
    (entry,) = list_caches()
    assert (entry.state, entry.key, entry.bytes) == ("old format", folder.name, 3 * 32 * 65 * 96 * 2 + 1055 + 27)
