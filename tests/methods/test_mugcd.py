"""μGCD, re-implemented: its schedule against known values, its loss by plain loops, both ways of assigning."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import newkinds
from conftest import TINY_TRAINING
from newkinds.data.batch import Batch, Pixels
from newkinds.data.views import ViewPlan
from newkinds.encoders.tokens import Encoded
from newkinds.errors import NewkindsError
from newkinds.methods import Progress, Step
from newkinds.methods.mugcd import MuGCD
from newkinds.runs.config import resolve
from newkinds.runs.run import Run


def method(**settings: Any) -> MuGCD:
    torch.manual_seed(0)
    return MuGCD(MuGCD.Config(**settings), dim=12, known=3, categories=7)


def cosines(rows: int, seed: int) -> torch.Tensor:
    return torch.rand(rows, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


# --- the average -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "expected"), [(0, 0.699), (0.5, 0.849), (0.75, 0.955), (0.9, 0.992), (1, 0.999)])
def test_momentum_rises_as_it_is_known_to(share: float, expected: float) -> None:
    momentum = method().teacher_momentum(Progress(round(200 * share), epochs=200))
    assert momentum == pytest.approx(expected, abs=5e-4)
    by_hand = 0.999 - (1 - 0.7) * (math.cos(math.pi * share) + 1) / 2
    assert momentum == pytest.approx(by_hand, abs=1e-12)


def test_momentum_rises_from_step_to_step_and_epoch_to_epoch_alike() -> None:
    by_epochs = [method().teacher_momentum(Progress(epoch, epochs=40)) for epoch in range(40)]
    by_steps = [method().teacher_momentum(Progress(e, epochs=4, step=s, steps=10)) for e in range(4) for s in range(10)]
    assert by_steps == pytest.approx(by_epochs, abs=1e-12)
    assert by_epochs == sorted(by_epochs)


@pytest.mark.parametrize("given", [{"base_momentum": 0.0, "momentum": 0.5}, {"base_momentum": 1.0}])
def test_momentum_is_a_share_whatever_the_settings(given: dict[str, float]) -> None:
    values = [method(**given).teacher_momentum(Progress(epoch, epochs=20)) for epoch in range(20)]
    assert all(0 <= value <= 1 for value in values)
    assert values[0] == pytest.approx(0 if "momentum" in given else 0.999)


# --- the loss ----------------------------------------------------------------------------------------------


def softmax(row: list[float], temperature: float) -> list[float]:
    exponentials = [math.exp(value / temperature) for value in row]
    return [e / sum(exponentials) for e in exponentials]


@pytest.mark.parametrize(("epoch", "teacher_temp"), [(0, 0.07), (29, 0.04), (100, 0.04)])
def test_the_loss_by_loops(epoch: int, teacher_temp: float) -> None:
    logits, taught, labels = cosines(6, seed=1), cosines(6, seed=2), [0, 2, -1, -1, 1, -1]
    built = method(sup_weight=0.3, memax_weight=2.0, student_temp=0.2)
    terms = built.loss_of(logits, taught, torch.tensor(labels), Progress(epoch, epochs=200))

    predictions = [softmax(row, 0.2) for row in logits.tolist()]
    targets = [softmax(row, teacher_temp) for row in taught.tolist()]
    distillation = labelled = 0.0
    for prediction, target, label in zip(predictions, targets, labels, strict=True):
        distillation -= sum(t * math.log(p) for t, p in zip(target, prediction, strict=True)) / 6
        labelled -= math.log(prediction[label]) / 3 if label >= 0 else 0.0
    mean = [sum(column) / 6 for column in zip(*predictions, strict=True)]
    gap = math.log(7) + sum(p * math.log(p) for p in mean)
    assert terms["distillation"].item() == pytest.approx(distillation, abs=1e-10)
    assert terms["labelled_cross_entropy"].item() == pytest.approx(labelled, abs=1e-10)
    assert terms["mean_entropy_gap"].item() == pytest.approx(gap, abs=1e-10)
    assert terms["loss"].item() == pytest.approx(0.7 * distillation + 0.3 * labelled + 2 * gap, abs=1e-10)


def test_teacher_and_student_are_the_same_cosines_of_their_own_views() -> None:
    built, features, others = method(), torch.randn(4, 12), torch.randn(4, 12)
    taught = built.teach(Encoded(others))
    rows = built.classifier.prototypes.detach()
    by_hand = torch.stack([torch.cosine_similarity(row[None], rows, dim=1) for row in others])
    torch.testing.assert_close(taught, by_hand)
    batch, progress = Batch(Pixels(torch.empty(0)), torch.tensor([0, -1, 2, -1]), torch.arange(4)), Progress(0, 10)
    wired = built.loss(Step(batch, Encoded(features), progress, taught))["loss"]
    assert wired == built.loss_of(built.classifier(features), taught, batch.labels, progress)["loss"]


@pytest.mark.parametrize("labels", [[0, 1, -1, -1], [-1, -1, -1], [2], [-1]])
def test_every_batch_has_a_finite_loss_and_gradients(labels: list[int]) -> None:
    built, n = method(), len(labels)
    features = torch.randn(n, 12, requires_grad=True)
    batch = Batch(Pixels(torch.empty(0)), torch.tensor(labels), torch.arange(n))
    with torch.no_grad():
        taught = built.teach(Encoded(torch.randn(n, 12)))
    terms = built.loss(Step(batch, Encoded(features), Progress(0, 10), taught))
    terms["loss"].backward()
    assert all(math.isfinite(value.item()) for value in terms.values())
    for parameter in (features, built.classifier.prototypes):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


# --- views, assignment, settings ---------------------------------------------------------------------------


def test_views_and_who_answers_follow_the_settings() -> None:
    assert method().views == ViewPlan(student=("strong",), teacher=("weak",))
    assert method(strong_colour=False).views.student == ("strong, same colours",)
    assert (method().teacher_answers, method(assign_by="student").teacher_answers) == (True, False)
    assert MuGCD.starts_from == "gcd"
    config = resolve({"data": {"name": "creatures"}, "method": {"name": "mugcd"}})
    assert (config.train.epochs, config.train.lr, config.method["memax_weight"]) == (200, 0.1, 1.0)
    with pytest.raises(NewkindsError, match=r"method\.assign_by' must be one of"):
        method(assign_by="both")
    with pytest.raises(NewkindsError, match=r"method\.momentum' must be a number from 0 to 1"):
        method(momentum=1.5)


def trained(folder: Path, **choices: Any) -> Run:
    settings = [TINY_TRAINING, {"train": {"lr": 0.02, "start": "none"}}, choices.pop("settings", {})]
    newkinds.train("creatures", folder, method="mugcd", settings=settings, **choices)
    return Run(folder)


def test_teacher_or_student_and_prototypes_or_kmeans_and_the_card_says_which(tmp_path: Path) -> None:
    teacher = trained(tmp_path / "teacher")
    student = trained(tmp_path / "student", settings={"method": {"assign_by": "student"}})
    clustered = trained(tmp_path / "clustered", assigner="sskmeans")
    assert [row["loss"] for row in teacher.metrics()] == [row["loss"] for row in student.metrics()]
    weights = [load_file(run.model_file) for run in (teacher, student, clustered)]
    prototypes = "method.classifier.prototypes"
    assert not torch.equal(weights[0][prototypes], weights[1][prototypes])
    assert torch.equal(weights[0][prototypes], weights[2][prototypes])
    assert weights[2]["assigner.centres"].any()
    for run, said in [(teacher, "prototypes of the teacher"), (student, "prototypes of the student")]:
        assert f"| assigner | {said} |" in run.path("README.md").read_text()
    assert "| assigner | sskmeans |" in clustered.path("README.md").read_text()


def test_a_cache_holds_strong_views_for_the_student_and_weak_ones_for_the_teacher(tmp_path: Path, caches: Path) -> None:
    run = trained(tmp_path / "run", cache_views=4)
    assert all(np.isfinite(row["loss"]) for row in run.metrics())
    assert len(list(caches.glob("*/rows.tokens"))) == 1
    newkinds.train("creatures", tmp_path / "other", cache_views=4, settings=TINY_TRAINING)  # weak views alone
    assert len(list(caches.glob("*/rows.tokens"))) == 2


def test_pixel_prompts_in_turns_need_two_views(tmp_path: Path) -> None:
    with pytest.raises(NewkindsError, match=r"'pixels' needs two views .* which mugcd does not have"):
        trained(tmp_path / "run", tuning="pixels")
    assert not (tmp_path / "run").exists()
    trained(tmp_path / "run", tuning="pixels", settings={"tuning": {"alternate": 0}})


def test_a_teacher_of_low_rank_changes(tmp_path: Path) -> None:
    """The average also stands in for weights that are computed in a step."""
    run = trained(tmp_path / "run", tuning="lora")
    assert load_file(run.model_file)["encoder.backbone.tuning.up"].any()
