"""The trainings of a plan: each runs as it is shipped, on odd data too; what it will take is known before it begins."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from covering import some_of, spread
from newkinds.data.table import Table
from newkinds.runs.run import Run
from newkinds.search import trainings
from newkinds.search.clock import Clock
from newkinds.search.search import Search
from newkinds.search.trainings import (
    FEWEST_STEPS,
    TRAININGS,
    Collapsed,
    TrainedFeatures,
    Trainer,
    Training,
    share_known,
)
from newkinds.search.ways import Way, judge_of
from newkinds.verbs.layers import resolve_layers
from newkinds.verbs.plan import TRAINER, Plan, PlannedSearch
from newkinds.verbs.stages import embed_once, look
from newkinds.verbs.train import load_images

HOUR = 3600.0
NAMES = [training.name for training in TRAININGS]
VIEWED = [training for training in TRAININGS if training.views]


def as_it_is(table: Table) -> Table:
    return table


def two_labels_a_class(table: Table) -> Table:
    left = dict.fromkeys(table.known, 2)
    labels: list[str | None] = []
    for label in table.labels:
        keeps = label is not None and left[label] > 0
        labels.append(label if keeps else None)
        if keeps and label is not None:
            left[label] -= 1
    return replace(table, labels=labels)


def one_large_class(table: Table) -> Table:
    """All images of one class, and three of every other."""
    assert table.truth is not None
    taken: dict[str, int] = {}
    rows = []
    for row, name in enumerate(table.truth):
        taken[name] = taken.get(name, 0) + 1
        if name == table.known[0] or taken[name] <= 3 or table.labels[row] is not None:
            rows.append(row)
    return table.rows(rows)


def nothing_new(table: Table) -> Table:
    return replace(table, categories=len(table.known))


ODDITIES = (as_it_is, two_labels_a_class, one_large_class, nothing_new)
Change = Callable[[Table], Table]


def begin(out: Path, change: Change = as_it_is) -> PlannedSearch:
    """A plan for 64 creatures, of eight kinds of which four are known, after some change."""
    plan = Plan(Run(out), [{"data": {"name": "creatures", "categories": 8, "per_category": 8}}], HOUR)
    config = resolve_layers(plan.layers)
    table = change(load_images(config, plan.run))
    return PlannedSearch(plan, embed_once(look(table, config, plan.layers, HOUR)), table.categories or 8, [])


@pytest.mark.parametrize(("name", "odd"), some_of(product(NAMES, ODDITIES), spread(NAMES, [ODDITIES])))
def test_each_training_gives_features_in_which_every_way_finds_categories(
    name: str, odd: Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the shipped ones, only the number of steps is changed, and what looks collapsed after so few is let pass."""
    [training] = [replace(one, steps=FEWEST_STEPS) for one in TRAININGS if one.name == name]
    monkeypatch.setattr(trainings, "FEWEST_FILLED", 0.0)
    monkeypatch.setattr(trainings, "MARGIN", 1.0)
    planned = begin(tmp_path / "run", odd)
    source = TrainedFeatures(training, planned.material, Clock(HOUR), TRAINER)
    split = planned.search.judge.splits[0]
    features = source.features(split, 0)
    assert features.own is not None
    for way in planned._ways_after():
        found = way.find(features, split)
        assert found.shape == split.rows.shape
        assert 0 <= found.min() <= found.max() < split.categories + split.known


@pytest.mark.usefixtures("caches")
def test_steps_are_measured_before_anything_is_computed_for_them(tmp_path: Path) -> None:
    """And of the trainings that read the same views, only the first has to compute them."""
    planned = begin(tmp_path / "run")
    material = planned.material
    first, second = VIEWED[:2]
    config = replace(material.config_of(first.settings_for(64)), k=8)
    assert TRAINER.uncached_views(material.table, config) == 64 * first.views
    assert 0 < TRAINER.step_seconds(material.table, config) < 60
    assert TRAINER.uncached_views(material.table, config) == 64 * first.views, "measuring needs none of them"
    few = replace(config, train=replace(config.train, epochs=1, eval_every=0))
    model, _ = TRAINER.train(material.table, few, None, None, None)
    assert not model.calibration.fitted, "it is thrown away: nobody asks how sure it is"
    config = replace(material.config_of(second.settings_for(64)), k=8)
    assert TRAINER.uncached_views(material.table, config) == 0


def told(step: float, views: int, asked: list[str]) -> Trainer:
    def step_seconds(*_: object) -> float:
        asked.append("steps")
        return step

    return replace(TRAINER, step_seconds=step_seconds, uncached_views=lambda *_: views)


def test_what_a_training_needs_is_its_steps_and_the_views_that_are_not_there(tmp_path: Path) -> None:
    material = replace(begin(tmp_path / "run").material, image_seconds=0.5)
    training = Training("some", VIEWED[0].settings, steps=100, views=5)
    asked: list[str] = []
    needs = TrainedFeatures(training, material, Clock(HOUR), told(2.0, 40, asked)).needs()
    assert needs == pytest.approx((3 + 1) * 100 * 2.0 + 40 * 0.5), "three splits, then all images"
    short = TrainedFeatures(training, material, Clock(10.0), told(2.0, 40, asked))
    assert short.needs() > 10
    assert asked == ["steps"], "what cannot be done in time by any guess is not measured"


def test_a_training_that_forgets_labels_has_collapsed_and_one_with_poor_categories_has_not(tmp_path: Path) -> None:
    """By features: how many of the labels the method's own categories meet is not what other ways make of them."""
    planned = begin(tmp_path / "run")
    material, table = planned.material, planned.looked.table

    class Made:
        """A model whose features are given, and whose categories are at random."""

        k, device = 8, torch.device("cpu")

        def assign(self, features: torch.Tensor) -> object:
            return type("Found", (), {"category": torch.arange(len(features)) % 8})

        def rows(self, features: torch.Tensor) -> torch.Tensor:
            return features

    known = trainings.require_sound(material, table, Made(), material.rows)  # type: ignore[arg-type]
    assert known["agreement"] == pytest.approx(share_known(material.rows, table.targets))
    noise = torch.nn.functional.normalize(torch.randn(64, 2, generator=torch.Generator().manual_seed(0)), dim=1)
    with pytest.raises(Collapsed, match=r"it knows \d+% of the labels, frozen features \d+%"):
        trainings.require_sound(material, table, Made(), noise)  # type: ignore[arg-type]


def test_the_share_of_labels_that_is_known_is_that_of_a_plain_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = np.array([0, 0, 0, 1, 1, 4, 4, -1, -1, 4])
    rows = torch.nn.functional.normalize(torch.randn(10, 3, generator=generator), dim=1)
    right = 0
    for row, label in zip(rows, targets, strict=True):
        means = {one: rows[targets == one].mean(0) for one in (0, 1, 4)}
        cosines = {one: float(row @ mean / mean.norm()) for one, mean in means.items()}
        right += int(label >= 0 and max(cosines, key=lambda one: cosines[one]) == label)
    assert share_known(rows, targets) == pytest.approx(right / 8)


def test_the_search_says_how_long_a_training_would_take(tmp_path: Path) -> None:
    planned = begin(tmp_path / "run")
    source = TrainedFeatures(VIEWED[0], planned.material, Clock(5.0), TRAINER)
    search = Search(judge_of(planned.looked.table.targets, 0, 8), Clock(5.0))
    search.compare(source, [Way("own")])
    assert search.state_of(source.name).startswith("not tried: needs about")
