"""Nothing is trained: honest baselines in the features as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import newkinds
from conftest import TINY_TRAINING, learns_prototypes, save_image, small_heads
from newkinds.data import load_table
from newkinds.errors import NewkindsError
from newkinds.experiments.outcomes import read_outcome
from newkinds.methods import METHODS
from newkinds.runs.config import resolve
from newkinds.runs.run import Run
from newkinds.training.model import build_model


def settings(method: str, **train: Any) -> list[dict[str, Any]]:
    return [TINY_TRAINING, {"method": small_heads(method, output_dim=64, projection_hidden=32), "train": train}]


@pytest.mark.parametrize("method", list(METHODS))
def test_no_epoch_means_raw_features_and_an_assigner_that_is_fitted(method: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    newkinds.discover("creatures", run, method=method, settings=settings(method, epochs=0, cache_views=4))
    newkinds.evaluate(run)
    assert Run(run).metrics() == []
    assert Run(run).config().train.cache_views == 0
    loaded = newkinds.load(run)
    features = torch.randn(5, loaded.model.encoder.dim, generator=torch.Generator().manual_seed(0))
    assert torch.equal(loaded.model.embedding(features), F.normalize(features, dim=1))
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert len(loaded.predict(save_image(tmp_path / "never-seen.png"))) == 1
    outcome = read_outcome(run)
    assert outcome is not None
    assert outcome.figures["seconds"] == 0
    assert outcome.figures["epoch_seconds"] is None
    assert outcome.protocol["training"] == "none"
    noted = "sskmeans instead of untrained prototypes" in outcome.protocol.get("assigner", "")
    assert noted == learns_prototypes(method)
    again = newkinds.discover("creatures", run, method=method, settings=settings(method, epochs=0, cache_views=4))
    assert len(again.members) == 32


def test_methods_with_the_same_assigner_agree_when_nothing_is_trained(tmp_path: Path) -> None:
    found = [
        newkinds.discover("creatures", tmp_path / method, method=method, settings=settings(method, epochs=0))
        for method in ("frozen", "gcd", "simgcd")
    ]
    assert found[0].members == found[1].members == found[2].members


def test_frozen_has_no_epochs_whatever_is_asked_for() -> None:
    config = resolve({"data": {"name": "creatures"}, "method": {"name": "frozen"}, "train": {"epochs": 7}})
    assert config.train.epochs == 0


def test_an_untrained_organizer_is_refused_unless_it_is_to_be_measured(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match="random start"):
        newkinds.train("creatures", tmp_path / "run", method="frozen", organizer="cpf", settings=TINY_TRAINING)
    newkinds.train(
        "creatures", tmp_path / "control", method="frozen", organizer="cpf",
        settings=settings("frozen", freeze_organizer=True),
    )  # fmt: skip


def test_learnt_prototypes_cannot_be_whitened() -> None:
    config = resolve({"data": {"name": "creatures"}, "embedding": {"whiten": "auto"}})
    with pytest.raises(NewkindsError, match="cannot be whitened"):
        build_model(config, load_table(config.data).known, 12)


@pytest.mark.parametrize("whiten", [0, -1, 1.5, "always"])
def test_a_shrinkage_without_a_meaning_is_refused(whiten: Any) -> None:
    with pytest.raises(NewkindsError, match=r"embedding\.whiten"):
        resolve({"data": {"name": "creatures"}, "embedding": {"whiten": whiten}})


def test_settings_of_an_assigner_that_is_not_chosen_are_refused() -> None:
    data = {"name": "creatures"}
    with pytest.raises(NewkindsError, match=r"assigner\.restarts belongs to an assigner that is not chosen"):
        resolve({"data": data, "assigner": {"restarts": 3}})
    waiting = {"assigner": {"pim": {"steps": 7}}}
    assert resolve({"data": data}, waiting).assigner == {"name": "own"}
    assert resolve({"data": data}, waiting, {"assigner": {"name": "pim"}}).assigner["steps"] == 7


def test_a_run_of_an_earlier_version_means_the_methods_own(trained_run: Path) -> None:
    config = Run(trained_run).config()
    assert (config.assigner, config.embedding) == ({"name": "own"}, {"whiten": "none"})
    old = {name: value for name, value in config.as_dict().items() if name not in ("assigner", "embedding")}
    assert resolve(old) == config
