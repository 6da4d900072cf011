"""What every method promises with every organizer; a new one is tested by being registered."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import newkinds
from conftest import TINY_TRAINING, save_image
from newkinds.methods import METHODS
from newkinds.organizers import ORGANIZERS
from newkinds.run import Run

EPOCHS = {"train": {"epochs": 5, "lr": 0.02, "batch_size": 32}}


@pytest.mark.parametrize("organizer", list(ORGANIZERS))
@pytest.mark.parametrize("method", list(METHODS))
def test_a_method_trains_saves_loads_and_predicts(method: str, organizer: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    found = newkinds.discover(
        "creatures", run, method=method, organizer=organizer, settings=[TINY_TRAINING, EPOCHS]
    )
    rows = Run(run).metrics()
    assert all(torch.isfinite(torch.tensor(row["loss"])) for row in rows)
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert len(found.members) == 32

    loaded = newkinds.load(run)
    features = torch.randn(5, loaded.model.encoder.dim, generator=torch.Generator().manual_seed(0))
    first, again = loaded.model.method.assign(features), newkinds.load(run).model.method.assign(features)
    assert torch.equal(first.category, again.category)
    assert ((first.confidence >= 0) & (first.confidence <= 1)).all()
    assert ((first.category >= 0) & (first.category < loaded.model.k)).all()
    assert len(loaded.predict(save_image(tmp_path / "never-seen.png"))) == 1


@pytest.mark.parametrize("method", list(METHODS))
def test_no_method_knows_an_organizer(method: str) -> None:
    module = __import__(METHODS[method].__module__, fromlist=["_"])
    source = Path(module.__file__ or "").read_text(encoding="utf-8").lower()
    assert "organizer" not in source
    assert "cpf" not in source
