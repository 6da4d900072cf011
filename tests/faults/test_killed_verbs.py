"""SIGKILL at random moments of the verbs that compute: the same command, given again, ends with the same bits.

All files are compared but those that `killing.py` names, which hold times."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from killing import LONG, Count, again_and_again

import newkinds
from conftest import TINY_TRAINING
from newkinds.data import load_table
from newkinds.data.table import readable
from newkinds.encoders.backbones import build_backbone
from newkinds.experiments.bench import bench
from newkinds.runs.records import CandidateScore
from newkinds.search import search
from newkinds.search.search import JUDGED, Choice
from newkinds.training.cache import cached_tokens
from planning import ADAPTER, shorten

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
long_only = pytest.mark.skipif(not LONG, reason="takes half a minute (NEWKINDS_FAULTS=long)")
SETTINGS: dict[str, Any] = {
    **TINY_TRAINING,
    "method": {"projection_hidden": 8},
    "train": {**TINY_TRAINING["train"], "workers": 0, "cache_views": 2},
}
PLANNED = {"data": {"categories": 8, "per_category": 8}, "train": {"workers": 0}}


@pytest.fixture
def forgotten(caches: Path) -> Callable[[], None]:
    """Begin without a cache."""
    return lambda: shutil.rmtree(caches, ignore_errors=True)


def test_discovering(tmp_path: Path, forgotten: Callable[[], None], count_cases: Count) -> None:
    """Caching tokens, training, embedding and assigning."""
    out = tmp_path / "out"

    def work(acknowledge: object) -> None:
        newkinds.discover("creatures", out, organizer="cpf", settings=SETTINGS)

    kills = again_and_again(work, out, 20 if LONG else 2, begin=forgotten)
    count_cases("kills of discover (cache, training, embedding, tables)", kills)


def test_training(tmp_path: Path, forgotten: Callable[[], None], count_cases: Count) -> None:
    out = tmp_path / "out"
    settings = {**SETTINGS, "train": {**SETTINGS["train"], "epochs": 4}}

    def work(acknowledge: object) -> None:
        newkinds.train("creatures", out, settings=settings)

    count_cases("kills of train", again_and_again(work, out, 16 if LONG else 1, begin=forgotten))


def test_caching(caches: Path, count_cases: Count) -> None:
    """Three batches of three views. Rows that nobody refers to may be left in the files: what is read is compared."""
    table = readable(load_table({"name": "creatures", "categories": 10, "per_category": 15}), contents=True)
    backbone = build_backbone("tiny")

    def work(acknowledge: object) -> None:
        cached_tokens(backbone, table, 2, workers=0)

    def tokens(folder: Path) -> dict[str, Any]:
        cache = cached_tokens(backbone, table, 2, workers=0, build=False)
        assert cache is not None
        rows = cache.rows_of(table)
        return {f"view {view}": cache.take(rows, np.full_like(rows, view)).numpy().tobytes() for view in range(3)}

    kills = again_and_again(work, caches, 20 if LONG else 1, seen=tokens)
    count_cases("kills while tokens are cached", kills)


@long_only
def test_benching(tmp_path: Path, forgotten: Callable[[], None], count_cases: Count) -> None:
    """A baseline made from frozen features, a training, their counts, and the picture of the table."""
    out = tmp_path / "out"

    def work(acknowledge: object) -> None:
        done = bench(
            "ablation", out, data=["creatures"], methods=["simgcd"], organizers=["none"], baselines=["kmeans"],
            settings=SETTINGS,
        )  # fmt: skip
        assert not done.failed

    count_cases("kills of bench", again_and_again(work, out, 12, begin=forgotten))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of one training, short, that wins."""

    def the_trained_one(tried: list[CandidateScore], favours_first: bool = True) -> Choice:
        return Choice(next((c for c in tried if c.trains and c.state == JUDGED), tried[0]), "for this test")

    shorten(monkeypatch, ADAPTER, steps=12)
    monkeypatch.setattr(search, "choose", the_trained_one)


@pytest.mark.usefixtures("quick")
@long_only
def test_tuning(tmp_path: Path, forgotten: Callable[[], None], count_cases: Count) -> None:
    out = tmp_path / "out"

    def work(acknowledge: object) -> None:
        newkinds.tune("creatures", out, settings=PLANNED)

    count_cases("kills of tune", again_and_again(work, out, 10, begin=forgotten))


@pytest.mark.usefixtures("quick")
@long_only
def test_planning(tmp_path: Path, forgotten: Callable[[], None], count_cases: Count) -> None:
    """What was chosen replaces the first answer. The page shows how long the trainings took."""
    out = tmp_path / "out"

    def work(acknowledge: object) -> None:
        newkinds.discover("creatures", out, settings=PLANNED)

    kills = again_and_again(work, out, 10, begin=forgotten, but=("report.html",))
    count_cases("kills of a planned discover", kills)


@long_only
def test_refining(whole_run: Path, tmp_path: Path, forgotten: Callable[[], None], count_cases: Count) -> None:
    run, out = Path(shutil.copytree(whole_run, tmp_path / "run")), tmp_path / "out"

    def work(acknowledge: object) -> None:
        newkinds.refine(run, out)

    kills = again_and_again(work, out, 10, begin=forgotten, but=("report.html",))  # it says when people decided
    count_cases("kills of refine", kills)
