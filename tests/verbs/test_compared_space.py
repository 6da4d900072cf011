"""Images of a run are compared where its assigner compares them: `em` whitens by its own clusters."""

from pathlib import Path

import numpy as np
import pytest
import torch

import newkinds
from newkinds.discovery.finished import read_features
from newkinds.discovery.split import read_embedding
from newkinds.files import csv_text
from newkinds.runs.run import Run

KINDS, IN_KIND, DIM = 8, 24, 12


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    """Kinds that differ in a few small directions, below large ones that say nothing: (n, D) rows, (n,) kinds."""
    random = np.random.RandomState(0)
    kind = np.repeat(np.arange(KINDS), IN_KIND)
    rows = random.randn(len(kind), DIM) * np.where(np.arange(DIM) < DIM // 2, 1.0, 0.05)
    rows[:, DIM // 2 :] += random.randn(KINDS, DIM - DIM // 2)[kind]
    return rows.astype(np.float32), kind


@pytest.fixture(scope="module")
def run(drawn: tuple[np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By `em`, of all kinds but the last one; half of them known."""
    folder = tmp_path_factory.mktemp("compared")
    rows, kind = drawn
    early = kind < KINDS - 1
    np.save(folder / "early.npy", rows[early])
    labels = [(row, f"kind-{of}") for row, of in enumerate(kind[early]) if of < KINDS // 2 and row % 2]
    (folder / "labels.csv").write_text(csv_text(("row", "label"), labels), encoding="utf-8")
    settings = {"assigner": {"name": "em"}, "embedding": {"whiten": "none"}}
    newkinds.discover(
        folder / "early.npy", folder / "run", labels=folder / "labels.csv", k=KINDS - 1, time="20s", settings=settings
    )
    return folder / "run"


def test_the_embedding_is_where_em_compares(run: Path) -> None:
    model, features = newkinds.load(run).model, read_features(Run(run))
    kept = read_embedding(Run(run), len(features))
    em = model.chosen_assigner
    unit = torch.nn.functional.normalize(features, dim=1).double()
    mapped = (unit - em.mean.double()) @ em.map.double()
    naive = mapped / mapped.norm(dim=1, keepdim=True)
    assert np.allclose(kept, naive.numpy(), atol=2e-3)  # float16
    cosines = naive @ em.directions.double().T + em.temperature * em.offsets.double()
    assert torch.equal(cosines.argmax(1), em(unit.float()).argmax(1))


def test_a_kind_that_comes_later_is_seen_there(run: Path, drawn: tuple[np.ndarray, np.ndarray]) -> None:
    rows, kind = drawn
    np.save(run.parent / "late.npy", rows[kind == KINDS - 1])
    found = newkinds.update(run, run.parent / "late.npy")
    came = [member.category_id for member in found.members if member.since == 1]
    opened = {category.id for category in found.categories if category.id >= KINDS - 1}
    assert len(came) == IN_KIND
    assert len(opened) == 1
    assert np.mean([number in opened for number in came]) > 0.9
