"""`newkinds predict` of images of kinds that the run does not know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from newkinds.data.folder import table_below
from newkinds.discovery.finished import Prediction, Predictions
from newkinds.verbs import predict

Cli = Callable[..., tuple[int, str, str]]


def said_of(unlike: list[float], run_cli: Cli, patch: pytest.MonkeyPatch, *options: object) -> str:
    """What the command says if so far are its images from every category."""
    made = [Prediction(f"{row}.png", "cat", False, 0.9, far, 0) for row, far in enumerate(unlike)]
    answer = Predictions(made, [], table_below(Path(), [], []), np.empty((0, 4), np.float32))
    patch.setattr(predict, "answer_about", lambda *_, **__: answer)
    status, _, error = run_cli("predict", "my run", "week-47/", *options)
    assert status == 0
    return error


def test_many_images_unlike_every_category_are_counted_with_what_to_do(
    run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = said_of([1.2, 1.5, 0.3, 0.4], run_cli, monkeypatch)
    assert "2 of 4 images are unlike every category (unlike > 1)" in error
    assert "with --report FILE.html a page shows them in groups" in error
    assert "newkinds update 'my run' week-47/ takes them in" in error
    assert "seen.html shows them in groups" in said_of(
        [1.2, 1.5, 0.3, 0.4], run_cli, monkeypatch, "--report", "seen.html"
    )


def test_stragglers_are_not_worth_a_sentence(run_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "unlike every category" not in said_of([1.2] + [0.3] * 3, run_cli, monkeypatch)
    assert "unlike every category" not in said_of([1.2, 1.2] + [0.3] * 20, run_cli, monkeypatch)
