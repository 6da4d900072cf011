"""Frozen features and other assigners are rows of a table like any other."""

from __future__ import annotations

from pathlib import Path

from conftest import TINY_TRAINING
from newkinds.experiments.bench import bench


def test_frozen_features_with_each_assigner_are_rows_of_a_table(tmp_path: Path) -> None:
    benched = bench(
        "plugin",
        tmp_path,
        methods=["frozen", "gcd"],
        organizers=["none", "ward", "kmeans-whitened"],
        data=["creatures"],
        settings=[TINY_TRAINING, {"train": {"epochs": 1}}],
    )
    assert not benched.failed
    for row in ("Frozen", "Frozen + WARD", "Frozen + KMEANS whitened", "GCD", "GCD + KMEANS whitened"):
        assert f"| {row} " in benched.text
