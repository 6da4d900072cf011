"""What every method promises with every organizer and backbone; a new one is tested by being registered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from itertools import cycle, product
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

import newkinds
from conftest import TINY_TRAINING
from covering import some_of, spread
from newkinds.contracts import CONTRACTS, AskedPart
from newkinds.contracts.methods import (
    a_killed_run_ends_with_the_same_bits,
    every_kind_of_organizer_can_be_plugged_in,
    gradients_reach_all_that_trains,
    it_trains,
    what_was_saved_answers_the_same,
)
from newkinds.contracts.small import small_training
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.tunings import TUNINGS
from newkinds.errors import NewkindsError
from newkinds.methods import METHODS, Step
from newkinds.methods.simgcd import SimGCD
from newkinds.runs.run import Run
from newkinds.settings import settings_of

TRAINED = [name for name in METHODS if METHODS[name].trains]
methods = pytest.mark.parametrize("method", TRAINED)
# No method knows organizers (tested below), so each meets one of them, in turns, and each organizer a method.
PAIRS = spread(TRAINED, [list(ORGANIZERS)])
IN_A_RUN = (
    gradients_reach_all_that_trains, it_trains, what_was_saved_answers_the_same, a_killed_run_ends_with_the_same_bits,
)  # fmt: skip
OF_PAIRS = (*IN_A_RUN, every_kind_of_organizer_can_be_plugged_in)
BEFORE_TRAINING = [contract.ask for contract in CONTRACTS["method"] if contract.ask not in OF_PAIRS]


def test_every_method_and_every_organizer_occurs() -> None:
    assert {method for method, _ in PAIRS} == set(TRAINED)
    of_organizer = {name: {method for method, organizer in PAIRS if organizer == name} for name in ORGANIZERS}
    assert all(of_organizer.values())


@pytest.mark.parametrize(("method", "organizer"), some_of(product(TRAINED, ORGANIZERS), PAIRS))
def test_a_run_keeps_all_promises(method: str, organizer: str, tmp_path: Path) -> None:
    """One test, because they share their trainings."""
    part, plugged = AskedPart("method", method, tmp_path), {"organizer": {"name": organizer}}
    for promise in IN_A_RUN:
        assert promise(part, plugged) is None


class Averaging(SimGCD):
    """As methods with a teacher are: an averaged copy of the head, and a queue of features, both used in the loss."""

    queue: torch.Tensor

    def __init__(self, config: SimGCD.Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        self.teacher = deepcopy(self.projection).requires_grad_(False)
        self.register_buffer("queue", torch.zeros(8, dim))

    def loss(self, step: Step) -> dict[str, torch.Tensor]:
        features = step.encoded.feature
        terms = super().loss(step)
        drift = (self.projection(features) - self.teacher(features.detach()).detach()).square().mean()
        terms["loss"] = terms["loss"] + drift + features.mean() * self.queue.mean()
        with torch.no_grad():
            for averaged, now in zip(self.teacher.parameters(), self.projection.parameters(), strict=True):
                averaged.lerp_(now, 0.1)
            self.queue.copy_(torch.cat([features.detach(), self.queue])[:8])
        return terms


def test_averaged_copies_and_queues_survive_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_after_an_epoch: Callable[[], AbstractContextManager[None]]
) -> None:
    monkeypatch.setitem(METHODS._entries, "averaging", Averaging)

    def train(folder: str) -> dict[str, torch.Tensor]:
        newkinds.train("creatures", tmp_path / folder, method="averaging", settings=TINY_TRAINING)
        return load_file(Run(tmp_path / folder).model_file)

    uninterrupted = train("one")
    with killed_after_an_epoch():
        train("two")
    state = Run(tmp_path / "two").load_state()
    assert state is not None
    assert {"method.queue", "method.teacher.0.weight"} <= state["model"].keys()
    assert not any("blocks.0." in name for name in state["model"]), "frozen weights come from their file"
    resumed = train("two")
    assert [name for name, value in uninterrupted.items() if not torch.equal(value, resumed[name])] == []


BACKBONES = ("test_vit.r160_in1k", "test_resnet.r160_in1k")
ON_BACKBONES = [*zip(TRAINED, cycle(BACKBONES), strict=False)]  # in turns
ON_BACKBONES += [(name, backbone) for name in TRAINED if METHODS[name].reads_prompts for backbone in BACKBONES]


@pytest.mark.parametrize(("method", "backbone"), some_of(product(TRAINED, BACKBONES), ON_BACKBONES))
def test_every_method_runs_on_other_backbones(method: str, backbone: str, tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    torch.manual_seed(0)
    save_file(timm.create_model(backbone, num_classes=0).state_dict(), weights)
    tuning = METHODS[method].tuning_defaults.get("name", "blocks")
    framed = {"tuning": {"where": "frame"}} if "where" in settings_of(TUNINGS[tuning]) else {}  # a CNN has no patches
    seen = {"backbone": {"name": backbone, "weights": str(weights), "image_size": 64}}
    plugged = {"organizer": {"name": "cpf", "heads": 8}}
    settings = [*small_training(AskedPart("method", method, tmp_path)), framed, seen, plugged]
    if "resnet" in backbone and METHODS[method].reads_prompts:
        with pytest.raises(NewkindsError, match=r"plain ViT, which the backbone .* is not: choose a ViT"):
            newkinds.discover(None, tmp_path / "run", settings=settings)
        return
    assert len(newkinds.discover(None, tmp_path / "run", settings=settings).members) == 32


@methods
def test_a_method_says_what_it_is_and_where_it_comes_from(method: str) -> None:
    module = __import__(METHODS[method].__module__, fromlist=["_"])
    assert len((METHODS[method].__doc__ or "").strip().splitlines()) > 2
    assert "20" in (module.__doc__ or ""), "the year of a publication"
    source = Path(module.__file__ or "").read_text(encoding="utf-8").lower()
    assert "organizer" not in source
    assert "cpf" not in source


@methods
@pytest.mark.parametrize("promise", BEFORE_TRAINING, ids=lambda promise: promise.__name__)
def test_a_method_keeps_its_promises_before_it_trains(promise: Callable[[AskedPart], str | None], method: str) -> None:
    assert promise(AskedPart("method", method, Path())) is None
