"""Groups of images, which are of one kind: one feature, one vote, hidden together when something is judged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from newkinds.assigners.resplit import task_splits
from newkinds.checks import run_checks
from newkinds.data.table import Table, readable
from newkinds.discovery.finished import labels_of_copies
from newkinds.encoders.encoder import frozen_encoder
from newkinds.search.folds import Lessons
from newkinds.training.embedding import embed, share_in_groups

CPU = torch.device("cpu")
PIXELS = np.random.default_rng(3).integers(0, 255, (7, 32, 32, 3), np.uint8)
GROUPS = ["a", None, "a", "b", "b", None, "a"]


def table_of(labels: list[str | None], groups: list[str | None] | None = GROUPS) -> Table:
    names = [f"{row}.png" for row in range(len(labels))]
    return Table(names, labels, lambda row: Image.fromarray(PIXELS[row]), groups=groups)


def test_a_group_has_the_mean_of_its_directions_and_others_stay_to_the_bit() -> None:
    encoder = frozen_encoder(name="tiny")
    alone = embed(encoder, table_of([None] * 7, None), CPU, workers=0).features.numpy()
    grouped = embed(encoder, table_of([None] * 7), CPU, workers=0).features.numpy()
    for own in ([0, 2, 6], [3, 4]):
        units = alone[own] / np.linalg.norm(alone[own], axis=1, keepdims=True)
        mean = units.mean(0) / np.linalg.norm(units.mean(0)) * np.linalg.norm(alone[own], axis=1).mean()
        for row in own:
            np.testing.assert_allclose(grouped[row], mean, rtol=1e-5, atol=1e-6)
    assert np.array_equal(grouped[[1, 5]], alone[[1, 5]])


def test_opposite_directions_have_no_mean() -> None:
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0]])
    assert torch.equal(share_in_groups(rows, np.array([0, 0, 2])), rows)


def test_groups_whose_labels_contradict_are_divided() -> None:
    one_label = table_of(["x", None, None, None, None, None, "x"])
    assert one_label.group_numbers().tolist() == [0, 1, 0, 3, 3, 5, 0]
    two = table_of(["x", None, "y", None, "z", "x", "x"])
    assert two.group_numbers().tolist() == [0, 1, 2, 3, 3, 5, 0], "without a label, in neither"
    assert labels_of_copies(one_label).tolist() == [0, -1, 0, -1, -1, -1, 0]
    assert labels_of_copies(two).tolist() == [0, -1, 1, 2, 2, 0, 0]


def test_a_group_counts_once() -> None:
    table = readable(table_of(["x", None, None, None, None, "x", "x"]), contents=True)
    assert table.distinct().tolist() == [0, 1, 3, 5]
    assert table.targets_once().tolist() == [0, -1, -1, -1, -1, 0, -1]
    assert table.fingerprint() != table_of(table.labels, None).fingerprint()


def test_the_check_names_both_labels() -> None:
    results = {
        result.check: result for result in run_checks(readable(table_of(["x", None, "y", None, "z", "x", "x"]), True))
    }
    found = results["group of two kinds"]
    assert found.flagged == [0, 2, 6]
    assert found.found.why[2] == "labelled 'y', but 'x' is in its group 'a' too"
    fine = {result.check: result for result in run_checks(readable(table_of(["x", None, "x"] + [None] * 4), True))}
    assert fine["group of two kinds"].flagged == []


@pytest.mark.parametrize("seed", range(3))
def test_labels_of_a_group_are_hidden_together(seed: int) -> None:
    random = np.random.RandomState(seed)
    labels = np.repeat(np.arange(8), 12)
    labels[random.permutation(96)[:20]] = -1
    groups = np.arange(96) // 3 * 3  # each within one class
    for split in task_splits(labels, 10, 3, random, most=1000, groups=groups):
        kept = split.labels >= 0
        assert not set(groups[kept]) & set(groups[split.hidden])
        known = (split.truth >= 0) & (split.truth < split.known)
        assert 0 < (known & ~kept).sum() < known.sum()


def test_without_groups_the_splits_are_those_of_before() -> None:
    labels = np.repeat([-1, 0, 1, 2, 3, 4], 9)
    plain, alone = (
        task_splits(labels, 7, 2, np.random.RandomState(5), 1000, groups) for groups in (None, np.arange(len(labels)))
    )
    assert [split.labels.tolist() for split in plain] == [split.labels.tolist() for split in alone]


def test_folds_do_not_divide_groups() -> None:
    groups = np.arange(40) // 4
    lessons = Lessons([], np.zeros(40, np.int64), 1, 1, groups=groups)
    object.__setattr__(lessons, "said", [type("Said", (), {"is_decided": row % 3 == 0}) for row in range(40)])
    folds = lessons.folds()
    assert sorted(np.concatenate([fold.hidden for fold in folds]).tolist()) == list(range(40))
    for fold in folds:
        assert len(fold.hidden) == 8
        assert not set(groups[fold.hidden]) & set(np.delete(groups, fold.hidden))
