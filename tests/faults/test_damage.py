"""One flipped bit or a lost tail in any file of a run or a cache: the same result, or the damage is named."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from damage import LONG, Count, Readers, damages, files_below, hit, outcome

import newkinds
from conftest import save_image
from newkinds.data import load_table
from newkinds.data.table import readable
from newkinds.discovery.studio.state import Studio
from newkinds.encoders.backbones import build_backbone
from newkinds.runs.run import Run
from newkinds.training.cache import cached_tokens
from newkinds.verbs.export import printed

FLIPS, TAILS = (6, 3) if LONG else (2, 1)  # besides those at the ends
HEAVY = ("predict", "evaluate", "report")  # a second each: for the files that they may read
READ_BY = {
    "predict": ("model.safetensors", "config.yaml", "categories.json", "edits.jsonl", "checksums.txt"),
    "evaluate": ("protocol.json", "assignments.csv", "images.csv", "skipped.csv", "features.safetensors"),
    "report": (
        "described.json", "fields.safetensors", "embedding.safetensors", "calibration.json", "metrics.jsonl",
        "count.json", "evaluation.json", "timing.json", "README.md", "report.html",
    ),
}  # fmt: skip


def readers(run: Path, aside: Path) -> Readers:
    """What is read from a run, by name; each gives something to compare."""

    def report() -> bytes:
        return newkinds.report(run, out=aside / "page.html").read_bytes()

    def found() -> Any:
        discovery = newkinds.Discovery.read(run)
        return discovery.members, discovery.categories, discovery.skipped, discovery.log()

    def split() -> list[list[str]]:
        discovery = newkinds.Discovery.read(run)
        return discovery.parts(max(discovery.categories, key=lambda category: category.size).id, 2)

    def state() -> Any:
        return str(Run(run).load_state())  # large tensors are shortened, but checksums see them

    return {
        "found": found,
        "names": lambda: [(c.name, c.is_new, c.size) for c in newkinds.Discovery.read(run).categories],
        "metrics": lambda: Run(run).metrics(),
        "settings": lambda: Run(run).config().as_dict(),
        "about": lambda: Run(run).about_model(),
        "state": state,
        "split": split,
        "table": lambda: printed(run, "csv"),
        "predict": lambda: newkinds.predict(run, aside / "a.png"),
        "evaluate": lambda: newkinds.evaluate(run),
        "report": report,
    }


def judged_by(name: str, number: int) -> list[str]:
    """What looks at the damage with this number: all that is quick, and what takes longer now and then."""
    light = ["found", "names", "metrics", "settings", "about", "state", "split", "table"]
    return light + [verb for verb in HEAVY if (LONG + (name in READ_BY[verb]) + (number == 2)) >= 2]


@pytest.mark.parametrize("part", range(4))
def test_damaged_files_of_a_run(
    part: int, whole_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], count_cases: Count
) -> None:
    run = Path(shutil.copytree(whole_run, tmp_path / "run"))
    save_image(tmp_path / "a.png")
    names = files_below(whole_run)
    assert len(names) >= 20, "a whole run has more kinds of files"
    luck, every = random.Random(part), readers(run, tmp_path)
    cases = hit(run, whole_run, names[part::4], every, capfd, luck=luck, flips=FLIPS, tails=TAILS, judged_by=judged_by)
    count_cases("flipped bits and lost tails in files of a run", cases)


def test_damaged_files_of_a_cache(caches: Path, capfd: pytest.CaptureFixture[str], count_cases: Count) -> None:
    table = readable(load_table({"name": "creatures", "categories": 2, "per_category": 4}), contents=True)
    backbone = build_backbone("tiny")

    def tokens() -> torch.Tensor:
        cache = cached_tokens(backbone, table, 2, workers=0)
        assert cache is not None
        rows = cache.rows_of(table)
        return torch.stack([cache.take(rows, np.full_like(rows, number)) for number in range(3)])

    sound = tokens()
    (folder,) = (entry for entry in caches.iterdir() if entry.is_dir())
    kept = Path(shutil.copytree(folder, caches.parent / "kept"))
    names, luck, cases = files_below(kept), random.Random(0), 0
    assert len(names) >= 3
    for name in names:
        for what, damaged in damages((kept / name).read_bytes(), luck, FLIPS, TAILS):
            (folder / name).write_bytes(damaged)
            kind, got = outcome(tokens)
            said = capfd.readouterr().err + (got if kind == "refused" else "")
            # a row that is computed again, in a smaller batch, may differ in its last bit: that is said
            assert (kind == "is" and torch.equal(got, sound)) or folder.name in said, (name, what)
            assert kind == "refused" or torch.allclose(got, sound, rtol=2e-3, atol=2e-3), (name, what)
            shutil.rmtree(folder)
            shutil.copytree(kept, folder)
            cases += 1
    count_cases("flipped bits and lost tails in files of a cache", cases)


def test_damaged_pictures_of_the_studio(table_run: Path, caches: Path, count_cases: Count) -> None:
    """They are made again."""
    sound = Studio(table_run).pictures.picture(0)
    (file,) = (file for file in caches.rglob("*") if file.is_file())
    kept, cases = file.read_bytes(), 0
    file.unlink()
    assert Studio(table_run).pictures.picture(0) == sound
    for what, damaged in damages(kept, random.Random(0), 3 * FLIPS, TAILS):
        file.write_bytes(damaged)
        assert Studio(table_run).pictures.picture(0) == sound, what
        assert file.read_bytes() == kept, what
        cases += 1
    count_cases("flipped bits and lost tails in pictures of the studio", cases)
