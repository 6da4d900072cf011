"""`newkinds train … --dry-run`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import newkinds
from conftest import SMALL_HEAD, TINY_TRAINING
from newkinds.training.model import build_model
from newkinds.verbs.forecast import forecast_training

SETTINGS = [TINY_TRAINING, SMALL_HEAD]


def files_below(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def test_a_forecast_has_the_figures_of_the_training_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEWKINDS_CACHE", str(tmp_path / "cache"))
    run = tmp_path / "run"
    forecast = forecast_training("creatures", run, organizer="cpf", cache_views=2, settings=SETTINGS)
    assert not files_below(tmp_path)
    assert forecast.step_seconds > 0
    assert (forecast.views, forecast.uncached) == (32 * 3, 32 * 3)
    done = newkinds.train("creatures", run, organizer="cpf", cache_views=2, settings=SETTINGS)
    protocol = done.run.protocol()
    assert {name: every for name, (_, every) in forecast.parameters.items()} == protocol.parameters | {"tuning": 0}
    assert forecast.trained == sum(
        p.numel() for p in build_model(done.config, done.model.known, done.model.k).parameters() if p.requires_grad
    )
    again = forecast_training("creatures", run, organizer="cpf", cache_views=2, settings=SETTINGS)
    assert again.uncached == 0  # the training has left them
    assert again.epochs_done == forecast.epochs == 2
    assert again.seconds == 0


def test_a_batch_in_pieces_takes_less_memory_and_more_images_more() -> None:
    def of(**train: int) -> int:
        settings = [*SETTINGS, {"train": {"cache_views": 0, **train}}]
        return forecast_training("creatures", "nowhere", settings=settings).batch_bytes

    whole = of(batch_size=16)
    assert of(batch_size=8) < whole
    assert of(batch_size=16, micro_batch=8) == pytest.approx(of(batch_size=8), rel=0.05)
    assert whole > 16 * 2 * 65 * 96 * 4  # at least the tokens that enter the block that trains: 1 + 64 of each view


def test_the_command_says_it_and_makes_no_folder(tmp_path: Path, run_cli: Callable[..., tuple[int, str, str]]) -> None:
    small = [
        "--set",
        "data.categories=4",
        "--set",
        "data.per_category=8",
        "--set",
        "train.batch_size=16",
        "--k",
        "auto",
    ]
    status, out, _ = run_cli("train", "creatures", "--out", str(tmp_path / "run"), "--epochs", "3", *small, "--dry-run")
    assert status == 0
    for words in ("3 epochs of 2", "parameters", "memory", "about", "assumed"):
        assert words in out
    assert not (tmp_path / "run").exists()
