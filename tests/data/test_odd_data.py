"""Data that real folders hold now and then: every method gives a sensible result, or says what to do."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import newkinds
from conftest import Killed, learns_prototypes, small_heads
from covering import some_of, spread
from newkinds.data.table import DATASETS, Table
from newkinds.discovery.categories import Discovery
from newkinds.methods import METHODS
from newkinds.runs.run import Run

COLOURS = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200), "grey": (120, 120, 120)}
PROTOTYPES = [name for name in METHODS if learns_prototypes(name)]
CLUSTERING = [name for name in METHODS if METHODS[name].trains and not learns_prototypes(name)]
FROZEN = [name for name in METHODS if not METHODS[name].trains]
# Nine oddities × all methods: each oddity meets a method of each family, in turns, so that all methods occur.
# With `pytest -m long` each meets all.
ODDITIES = (
    "one label", "no room", "few images", "many labels", "no label", "copies", "too many", "evaluation",
    "half precision",
)  # fmt: skip
MET = spread(ODDITIES, [PROTOTYPES, CLUSTERING, FROZEN])


def methods(oddity: str) -> pytest.MarkDecorator:
    met = [(method,) for place, method in MET if place == oddity]
    return pytest.mark.parametrize("method", some_of([(name,) for name in METHODS], met))


def test_all_methods_meet_something_odd() -> None:
    assert {method for _, method in MET} == set(METHODS)


def _noisy(pictures: list[tuple[str, int]], row: int) -> Image.Image:
    colour, seed = pictures[row]
    noise = np.random.default_rng(seed).integers(-30, 30, (40, 40, 3))
    return Image.fromarray(np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Discover among so many labelled and unlabelled pictures of each colour, `folder` apart from others."""

    def discover(
        method: str,
        labelled: dict[str, int],
        unlabelled: dict[str, int],
        k: int,
        known_first: list[str] | None = None,
        copies: bool = False,
        folder: str = "run",
        **train: Any,
    ) -> Discovery:
        labels = [colour for colour, count in labelled.items() for _ in range(count)]
        truth = labels + [colour for colour, count in unlabelled.items() for _ in range(count)]
        pictures = [(colour, 0 if copies else row) for row, colour in enumerate(truth)]
        table = Table(
            paths=[f"{row}.png" for row in range(len(truth))],
            labels=[*labels, *[None] * (len(truth) - len(labels))],
            open=partial(_noisy, pictures),
            truth=list(truth),
            known_first=known_first,
        )
        monkeypatch.setitem(DATASETS._entries, "pictures", lambda: table)
        settings = {
            "train": {"epochs": 1, "batch_size": 8, "workers": 0, "start": "none", **train},
            "backbone": {"image_size": 32},  # faster
            "method": small_heads(method, projection_hidden=32, output_dim=64),
        }
        return newkinds.discover("pictures", tmp_path / folder, k=k, method=method, settings=settings)

    discover.folder = tmp_path  # type: ignore[attr-defined]
    return discover


def sizes(found: Discovery) -> Counter[str]:
    return Counter(member.category for member in found.members)


@methods("one label")
def test_one_labelled_image_a_class(run: Any, method: str) -> None:
    found = run(method, {"red": 1, "green": 1}, {"red": 4, "green": 4, "blue": 5}, k=3)
    assert sum(sizes(found).values()) == 15
    assert {name for name in sizes(found) if not name.startswith("new-")} <= {"red", "green"}
    assert {member.category for member in found.members if member.given_label} == {"red", "green"}


@methods("no room")
def test_no_room_for_new_categories(run: Any, method: str) -> None:
    found = run(method, {"red": 3, "green": 3, "blue": 3}, {"red": 4, "green": 4}, k=3)
    assert set(sizes(found)) <= {"red", "green", "blue"}


@methods("few images")
def test_fewer_images_than_a_batch_or_than_neighbours(run: Any, method: str) -> None:
    found = run(method, {"red": 1, "green": 1}, {"red": 1, "blue": 1}, k=3, batch_size=500)
    assert len(found.members) == 4
    assert len(run(method, {"red": 1}, {"blue": 1}, k=2, folder="two").members) == 2


@methods("many labels")
def test_a_class_with_more_labels_than_its_share_of_images(run: Any, method: str) -> None:
    found = run(method, {"red": 20, "green": 2}, {"red": 4, "green": 4, "blue": 2}, k=4)
    assert len(found.members) == 32


@methods("no label")
def test_a_known_class_without_a_label_keeps_its_number(run: Any, method: str) -> None:
    found = run(
        method, {"red": 3, "blue": 3}, {"red": 4, "green": 4, "blue": 4, "grey": 4}, k=5,
        known_first=["green", "red", "blue"],
    )  # fmt: skip
    assert [category.name for category in found.categories[:3]] == ["green", "red", "blue"]
    if not learns_prototypes(method):  # so few steps teach prototypes nothing
        category = {member.category for member in found.members if member.given_label == "red"}
        assert "red" in category


@methods("copies")
def test_copies_of_one_picture(run: Any, method: str) -> None:
    found = run(method, {"red": 3, "green": 3}, {"red": 4, "green": 4, "blue": 4}, k=5, copies=True)
    together = {(member.category, int(member.path[:-4])) for member in found.members}
    for rows in ({*range(6, 10)}, {*range(10, 14)}, {*range(14, 18)}):  # labelled copies are in their class anyway
        assert len({category for category, row in together if row in rows}) == 1, "equal pictures, one category"


@methods("too many")
def test_more_categories_than_images_could_show_are_refused_before_training(run: Any, method: str) -> None:
    with pytest.raises(newkinds.errors.NewkindsError, match="at most 6"):
        run(method, {"red": 5, "green": 5}, {"red": 4}, k=7)
    assert not (run.folder / "run").exists()


@methods("evaluation")
def test_evaluation_on_the_way_changes_nothing(run: Any, method: str) -> None:
    arguments = ({"red": 3, "green": 3}, {"red": 4, "green": 4, "blue": 4}, 3)
    run(method, *arguments, epochs=2, eval_every=1)
    run(method, *arguments, epochs=2, folder="never")
    curve, never = Run(run.folder / "run"), Run(run.folder / "never")
    assert all(0 <= row["acc_all"] <= 1 for row in curve.metrics())
    assert curve.model_file.read_bytes() == never.model_file.read_bytes()


@methods("half precision")
def test_half_precision_in_the_encoder(run: Any, method: str) -> None:
    found = run(method, {"red": 3, "green": 3}, {"red": 4, "green": 4, "blue": 4}, k=3, precision="bfloat16")
    assert all(torch.isfinite(torch.tensor(row["loss"])) for row in Run(run.folder / "run").metrics())
    assert len(found.members) == 18


@pytest.mark.parametrize("method", some_of([(name,) for name in CLUSTERING], [(name,) for name in CLUSTERING[::3]]))
def test_a_run_killed_in_its_last_clustering_loses_no_epoch(
    run: Any, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ({"red": 3, "green": 3}, {"red": 4, "green": 4, "blue": 4}, 3)
    run(method, *arguments, folder="uninterrupted")

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("newkinds.training.model.Model.find_categories", die)
        with pytest.raises(Killed):
            run(method, *arguments)
    killed = Run(run.folder / "run")
    assert len(killed.metrics()) == 1
    assert not killed.model_file.exists()
    with monkeypatch.context() as patched:
        patched.setattr("newkinds.training.loop.step", die)  # no step is made again
        run(method, *arguments)
    assert killed.model_file.read_bytes() == Run(run.folder / "uninterrupted").model_file.read_bytes()
