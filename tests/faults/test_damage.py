"""One flipped bit or a lost tail in any file that we write: the same result, or the damage is named."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import newkinds
from conftest import save_image
from newkinds.data import load_table
from newkinds.data.table import readable
from newkinds.encoders.backbones import build_backbone
from newkinds.errors import NewkindsError
from newkinds.runs import directory
from newkinds.runs.run import Run
from newkinds.training.cache import cached_tokens
from newkinds.verbs.export import printed

LONG = os.environ.get("NEWKINDS_FAULTS") == "long"
HEAVY = ("predict", "evaluate", "report")  # a second each: for the files that they may read
READ_BY = {
    "predict": ("model.safetensors", "config.yaml", "categories.json", "edits.jsonl", "checksums.txt"),
    "evaluate": ("protocol.json", "assignments.csv", "images.csv", "skipped.csv", "features.safetensors"),
    "report": (
        "described.json", "fields.safetensors", "embedding.safetensors", "calibration.json", "metrics.jsonl",
        "count.json", "evaluation.json", "timing.json", "README.md", "report.html",
    ),
}  # fmt: skip


def readers(run: Path, aside: Path) -> dict[str, Callable[[], Any]]:
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


def outcome(read: Callable[[], Any]) -> tuple[str, Any]:
    """What was read, or the sentence that refuses it; anything else that is raised ends the test."""
    try:
        return "is", read()
    except NewkindsError as error:
        return "refused", str(error)


def damages(content: bytes, luck: random.Random) -> Iterator[tuple[str, bytes]]:
    """Single bits, at the ends and somewhere, and tails of different lengths that are not there."""
    if not content:
        return
    flips = [0, len(content) - 1, *(luck.randrange(len(content)) for _ in range(30 if LONG else 2))]
    for place in flips:
        changed = bytearray(content)
        changed[place] ^= 1 << luck.randrange(8)
        yield f"bit in byte {place}", bytes(changed)
    for kept in {0, len(content) // 2, *(luck.randrange(len(content)) for _ in range(10 if LONG else 1))}:
        yield f"nothing after byte {kept}", content[:kept]


def judged_by(name: str, number: int) -> list[str]:
    """What looks at the damage with this number; in the short version few look at all they could."""
    light = ["found", "names", "metrics", "settings", "about", "state", "split", "table"]
    return light + [verb for verb in HEAVY if LONG or (name in READ_BY[verb] and number == 2)]


def is_whole_lines(name: str, content: bytes, damaged: bytes) -> bool:
    """A log that only grows cannot show that it lost whole lines at its end; it reads as it was then."""
    return name == "edits.jsonl" and content.startswith(damaged) and content[len(damaged) :].startswith(b"\n")


@pytest.mark.parametrize("part", range(4))
def test_damaged_files_of_a_run(
    part: int, whole_run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    count_cases: Callable[[str, int], None],
) -> None:
    run, luck, cases = Path(shutil.copytree(whole_run, tmp_path / "run")), random.Random(part), 0
    save_image(tmp_path / "a.png")
    every = readers(run, tmp_path)
    names = sorted(file.name for file in whole_run.iterdir() if file.stat().st_size)
    assert len(names) >= 20, "a whole run has more kinds of files"
    sound = {name: outcome(read) for name, read in every.items()}
    assert [name for name, (kind, _) in sound.items() if kind != "is"] == []
    pristine = {name: (whole_run / name).read_bytes() for name in names}
    for name in names[part::4]:
        for number, (what, damaged) in enumerate(damages(pristine[name], luck)):
            (run / name).write_bytes(damaged)
            directory._mention_change.cache_clear()
            for verb in judged_by(name, number):
                capfd.readouterr()
                kind, got = outcome(every[verb])
                said = capfd.readouterr().err + (got if kind == "refused" else "")
                named = name in said.replace("\n", "") or is_whole_lines(name, pristine[name], damaged)
                got_it = (kind, got) == sound[verb]
                assert got_it or named, f"{name} with {what}: {verb} {kind} {str(got)[:300]}, and said {said!r}"
            cases += 1
            for there in whole_run.iterdir():  # evaluating writes
                if there.stat().st_mtime_ns != (run / there.name).stat().st_mtime_ns:
                    shutil.copy2(there, run)
    count_cases("flipped bits and lost tails in files of a run", cases)


@pytest.mark.parametrize("name", ["cache.json", "rows.tokens", "rows.index"])
def test_damaged_files_of_a_cache(
    name: str, caches: Path, capfd: pytest.CaptureFixture[str], count_cases: Callable[[str, int], None]
) -> None:
    table = readable(load_table({"name": "creatures", "categories": 2, "per_category": 4}), contents=True)
    backbone = build_backbone("tiny")

    def tokens() -> torch.Tensor:
        cache = cached_tokens(backbone, table, 2, workers=0)
        assert cache is not None
        rows = cache.rows_of(table)
        return torch.stack([cache.take(rows, np.full_like(rows, number)) for number in range(3)])

    sound = tokens()
    (folder,) = (entry for entry in caches.iterdir() if entry.is_dir())
    kept = shutil.copytree(folder, caches.parent / "kept")
    cases = 0
    for what, damaged in damages((folder / name).read_bytes(), random.Random(0)):
        (folder / name).write_bytes(damaged)
        kind, got = outcome(tokens)
        said = capfd.readouterr().err + (got if kind == "refused" else "")
        # a row that is computed again, in a smaller batch, may differ in its last bit: that is said
        assert (kind == "is" and torch.equal(got, sound)) or folder.name in said, what
        assert kind == "refused" or torch.allclose(got, sound, rtol=2e-3, atol=2e-3), what
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        cases += 1
    count_cases("flipped bits and lost tails in files of a cache", cases)
