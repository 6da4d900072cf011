"""Training from cached tokens: the same as on the same views, said in the run, and not needed where impossible."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import newkinds
from conftest import SMALL_HEAD
from newkinds.data import load_table
from newkinds.data.batch import CachedTokens
from newkinds.data.loader import FixedViews, StoredBatches
from newkinds.data.table import Table, readable
from newkinds.encoders.backbone import Backbone
from newkinds.errors import NewkindsError
from newkinds.runs.config import resolve
from newkinds.runs.run import Run
from newkinds.training.cache import cached_tokens
from newkinds.training.embedding import embed
from newkinds.training.loop import fit
from newkinds.training.model import build_model
from newkinds.training.store import list_caches
from newkinds.verbs.train import _cached

Killed = Callable[[], AbstractContextManager[None]]
SMALL = {"name": "creatures", "categories": 4, "per_category": 17}
FASTER = {"image_size": 32}


@pytest.fixture(scope="module")
def table() -> Table:
    return readable(load_table(SMALL), contents=True)


class FromPixels:
    """The same fixed views as a cache has, computed anew each time: what training without a cache would see."""

    random_views = 4
    kinds = ("weak",)

    def __init__(self, table: Table, backbone: Backbone) -> None:
        self.table = table
        self.backbone = backbone

    def rows_of(self, table: Table) -> np.ndarray:
        return np.arange(len(table))

    def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> CachedTokens:
        views = FixedViews(self.table, self.backbone.preprocessing, 0, rows.tolist(), [[n] for n in numbers.tolist()])
        pixels = torch.cat([view for i in range(len(views)) if isinstance(view := views[i], torch.Tensor)])
        with torch.no_grad():
            return CachedTokens(self.backbone.frozen_part(self.backbone.preprocessing.normalise(pixels)))

    def holds(self, table: Table) -> bool:
        return False


@pytest.mark.parametrize(("method", "organizer"), [("simgcd", "none"), ("simgcd", "cpf"), ("cms", "patches")])
def test_training_from_a_cache_is_training_on_the_same_views(
    method: str, organizer: str, table: Table, caches: Path, tmp_path: Path
) -> None:
    config = resolve(
        {"data": SMALL, "method": {"name": method}, "organizer": {"name": organizer}, "backbone": FASTER},
        SMALL_HEAD,
        {"train": {"epochs": 2, "batch_size": 32, "lr": 0.02}},
    )
    features, losses = {}, {}
    for kind in ("pixels", "float32", "float16"):
        model = build_model(config, table.known, 4)
        backbone = model.encoder.backbone
        cache = FromPixels(table, backbone) if kind == "pixels" else cached_tokens(backbone, table, 4, precision=kind)
        run = Run(tmp_path / kind)
        run.begin(config)
        fit(model, table, config.train, run, cache=cache)
        losses[kind] = [row["loss"] for row in run.metrics()]
        features[kind] = embed(model.encoder, table, model.device).features
    assert losses["float32"] == pytest.approx(losses["pixels"], rel=1e-5)
    torch.testing.assert_close(features["float32"], features["pixels"], rtol=1e-4, atol=1e-4)
    size = features["pixels"].abs().max()
    assert 0 < (features["float16"] - features["pixels"]).abs().max() < 0.01 * size


@pytest.mark.parametrize("organizer", ["grid", "cpf-parts"])
def test_slots_that_do_not_train_are_computed_once_and_change_nothing(
    organizer: str, table: Table, caches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = resolve(
        {"data": SMALL, "backbone": {**FASTER, "train_blocks": 0}, "organizer": {"name": organizer}, **SMALL_HEAD},
        {"train": {"epochs": 3, "batch_size": 32}},
    )
    features, asked = {}, {}
    for kind in ("tokens", "slots"):
        model = build_model(config, table.known, 4)
        counted = Mock(wraps=model.encoder.organizer.slots)
        monkeypatch.setattr(model.encoder.organizer, "slots", counted)
        if kind == "tokens":
            monkeypatch.setattr(model.encoder.organizer, "fixed_slots", False)
        run = Run(tmp_path / kind)
        run.begin(config)
        fit(model, table, config.train, run, cache=cached_tokens(model.encoder.backbone, table, 4))
        asked[kind] = sum(len(call.args[0].cls) for call in counted.call_args_list)
        features[kind] = embed(model.encoder, table, model.device).features
    torch.testing.assert_close(features["slots"], features["tokens"], rtol=0.02, atol=0.02)
    assert asked["slots"] == 5 * len(table)  # every view once


def test_an_organizer_starts_once(table: Table, caches: Path, tmp_path: Path, killed_after_an_epoch: Killed) -> None:
    settings = {"data": SMALL, "backbone": FASTER, "organizer": {"name": "cpf-parts", "train_field": True}}
    config = resolve(settings, SMALL_HEAD, {"train": {"epochs": 2, "batch_size": 32}})
    runs = {name: Run(tmp_path / name) for name in ("whole", "resumed")}
    states = {}
    for name, run in runs.items():
        run.begin(config)
        if name == "resumed":
            with killed_after_an_epoch():
                fit(build_model(config, table.known, 4), table, config.train, run)
        states[name] = fit(build_model(config, table.known, 4), table, config.train, run).model.state_dict()
    for name, value in states["whole"].items():
        assert torch.equal(states["resumed"][name], value), name


def test_a_step_sees_two_different_views_that_depend_on_seed_and_epoch_alone(table: Table) -> None:
    class Numbers:
        random_views = 3
        kinds = ("weak",)

        def rows_of(self, table: Table) -> np.ndarray:
            return np.arange(len(table))

        def inputs(self, rows: np.ndarray, numbers: np.ndarray) -> CachedTokens:
            return CachedTokens(torch.from_numpy(numbers))

    def views(seed: int, epoch: int) -> torch.Tensor:
        batches = StoredBatches(table, Numbers(), 32, seed)
        return torch.stack([batch.inputs.values for batch in batches(epoch)])  # (steps, 2·32)

    seen = views(0, 5)
    first, second = seen.unflatten(1, (2, -1)).unbind(1)
    assert (first != second).all()
    assert set(seen.flatten().tolist()) == {1, 2, 3}  # 0 is for evaluation
    assert seen.equal(views(0, 5))
    assert not seen.equal(views(0, 6))
    assert not seen.equal(views(1, 5))
    batches = StoredBatches(table, Numbers(), 32, 0)
    assert torch.cat([batch.index for batch in batches.of_all_rows(0, 2)]).equal(torch.arange(len(table)))


def test_a_trained_run_does_without_a_cache_that_is_not_its_own(
    tmp_path: Path, caches: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        **SMALL_HEAD,
        "data": {"categories": 4, "per_category": 8},
        "train": {"epochs": 1, "batch_size": 16, "cache_views": 2},
    }
    newkinds.train("creatures", tmp_path / "run", settings=settings)
    (file,) = caches.glob("*/cache.json")
    file.write_text('{"origin": {}}')
    newkinds.discover("creatures", tmp_path / "run", settings=settings)
    assert "read again instead" in capsys.readouterr().err
    monkeypatch.setenv("NEWKINDS_CACHE", "~nobody-of-this-name/x")
    newkinds.discover("creatures", tmp_path / "run", settings=settings)
    with pytest.raises(NewkindsError, match="no place for a cache"):
        list_caches()


def test_a_place_that_cannot_be_written_is_said_and_auto_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("NEWKINDS_CACHE", str(tmp_path / "file" / "caches"))
    settings = {**SMALL_HEAD, "data": {"categories": 4, "per_category": 8}, "train": {"epochs": 9, "batch_size": 32}}
    with pytest.raises(NewkindsError, match="cannot use the cache"):
        newkinds.train("creatures", tmp_path / "a", settings=[settings, {"train": {"cache_views": 2}}])
    assert not (tmp_path / "a").exists()
    newkinds.train("creatures", tmp_path / "b", settings=settings)
    assert "Training continues without a cache" in capsys.readouterr().err
    assert Run(tmp_path / "b").config().train.cache_views == 0


def test_runs_say_how_they_saw_their_images_and_go_on_as_they_began(tmp_path: Path, caches: Path) -> None:
    settings = {**SMALL_HEAD, "data": {"categories": 4, "per_category": 8}, "train": {"epochs": 2, "batch_size": 32}}
    newkinds.train("creatures", tmp_path / "short", settings=settings)
    assert Run(tmp_path / "short").config().train.cache_views == 0
    assert not list_caches()
    cached = {"train": {"cache_views": 3}}
    newkinds.train("creatures", tmp_path / "cached", settings=[settings, cached])
    newkinds.train("creatures", tmp_path / "cached", settings=settings)  # auto: as it was begun
    found = newkinds.discover("creatures", tmp_path / "cached", settings=settings)
    assert "3 fixed views per image, their tokens cached in float16" in (found.run / "README.md").read_text()
    with pytest.raises(NewkindsError, match=r"train\.cache_views"):
        newkinds.train("creatures", tmp_path / "cached", settings=[settings, {"train": {"cache_views": 4}}])
    newkinds.train("creatures", tmp_path / "long", settings=[settings, {"train": {"epochs": 9}}])
    assert Run(tmp_path / "long").config().train.cache_views == 8
    (entry,) = list_caches()
    assert (entry.images, entry.views) == (32, 8)


def test_a_killed_training_on_cached_views_ends_with_the_same_bits(
    tmp_path: Path, caches: Path, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    settings = {
        **SMALL_HEAD,
        "data": {"categories": 4, "per_category": 8},
        "train": {"epochs": 3, "batch_size": 16, "cache_views": 3},
    }
    newkinds.train("creatures", tmp_path / "whole", organizer="cpf", settings=settings)
    with killed_after_an_epoch():
        newkinds.train("creatures", tmp_path / "killed", organizer="cpf", settings=settings)
    newkinds.train("creatures", tmp_path / "killed", organizer="cpf", settings=settings)
    assert Run(tmp_path / "killed").model_file.read_bytes() == Run(tmp_path / "whole").model_file.read_bytes()


def test_networks_that_do_not_divide_are_told_and_auto_leaves_them_alone(table: Table, caches: Path) -> None:
    config = resolve({"data": SMALL, "backbone": {"name": "test_resnet"}, "train": {"epochs": 9}})
    model = build_model(config, table.known, 4, load_weights=False)
    with pytest.raises(NewkindsError, match="ResNet"):
        cached_tokens(model.encoder.backbone, table, 2)
    cache, settled = _cached(model, table, config, torch.device("cpu"), build=True)
    assert cache is None
    assert settled.train.cache_views == 0


@pytest.mark.parametrize("views", [-1, 10_001, 10**12])
def test_a_number_of_views_that_makes_no_sense(views: int, tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="from 1 to 10000"):
        newkinds.train("creatures", tmp_path / "run", settings={"train": {"cache_views": views}})
