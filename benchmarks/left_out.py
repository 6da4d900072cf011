"""Ways to find categories that are no candidates of `newkinds discover`, beside those that are, on drawn classes.

Features are .npz files as `benchmarks/features.py` writes them; two that are joined by `+`, of the same images at two
sizes, give rows twice as long. A seed draws classes and labels as in `benchmarks/choosing.py`. All in percent by one
match, K given; with `--splits` also the mean on the splits by which `discover` chooses.

- `em evenness 1`, `em evenness .5`: sizes are believed to be even, or half so.
- `self-training .3`, `.5`: the surest share of each category that `em` finds joins the labels, and `em` runs again.
- `em, then pim`: PIM in features as they are, from the categories of `em`.

    python benchmarks/left_out.py cars=cars-112.npz:49 uneven=cub-112.npz:50:6 --seeds 10 11 12 13 --out left-out.jsonl
    python benchmarks/left_out.py joined=cars-112.npz+cars-224.npz:49 --ways em --splits --out joined.jsonl
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from choosing import draw
from newkinds.assigners import ASSIGNERS
from newkinds.assigners.em import EM
from newkinds.assigners.known_clusters import name_categories
from newkinds.assigners.pim import STEPS, maximise_information, mean_directions
from newkinds.cluster.metrics import clustering_accuracy
from newkinds.search.ways import hidden_accuracy, judge_of
from newkinds.text import text_table

Find = Callable[[Tensor, Tensor, int, int], Tensor]  # rows (n, P), labels (n,), known classes, K → categories (n,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="NAME=FILE.npz[+FILE.npz][:CLASSES[:UNEVEN]]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--splits", action="store_true")
    parser.add_argument("--out", type=Path, required=True, help="one line of JSON per cell; what is there is kept")
    given = parser.parse_args()
    lines = given.out.read_text().splitlines() if given.out.is_file() else []
    cells = {(cell["set"], cell["seed"], cell["way"]): cell for cell in map(json.loads, lines)}
    for seed in given.seeds:
        for data in given.data:
            name, _, place = data.partition("=")
            missing = [way for way in given.ways if (name, seed, way) not in cells]
            drawn = read_draw(place, seed) if missing else None
            for way in missing:
                assert drawn is not None
                cell = {"set": name, "seed": seed, "way": way, **figures(WAYS[way], *drawn, seed, given.splits)}
                cells[name, seed, way] = cell
                with given.out.open("a") as file:
                    file.write(json.dumps(cell) + "\n")
    for data in given.data:
        print(table(data.partition("=")[0], given.ways, given.seeds, cells))


def read_draw(place: str, seed: int) -> tuple[Tensor, NDArray[np.int64], NDArray[np.int64]]:
    """Unit rows, true classes (the known ones first), and labels (-1: none)."""
    files, *how = place.split(":")
    classes, uneven = int(how[0]) if how else 0, float(how[1]) if len(how) > 1 else 1.0
    read = [np.load(file, allow_pickle=False) for file in files.split("+")]
    for other in read[1:]:
        assert (other["paths"] == read[0]["paths"]).all(), f"{files}: these are not the same images"
    tokens = [one["cls"] / np.linalg.norm(one["cls"], axis=1, keepdims=True) for one in read]
    return draw(np.concatenate(tokens, axis=1), read[0]["truth"], classes, seed, uneven)


def figures(
    find: Find, rows: Tensor, truth: NDArray[np.int64], labels: NDArray[np.int64], seed: int, on_splits: bool
) -> dict[str, object]:
    """All of the unlabelled images; and by name, of what each split hides."""
    k, known = int(truth.max()) + 1, int(labels.max()) + 1
    torch.manual_seed(0)
    with torch.no_grad():
        category = find(rows, torch.from_numpy(labels), known, k).numpy()
    hidden = labels < 0
    every = clustering_accuracy(truth[hidden], category[hidden], range(known)).all
    scores = []
    for split in judge_of(labels, seed, k).splits if on_splits else ():
        torch.manual_seed(split.seed % 2**31)
        with torch.no_grad():
            found = find(rows[split.rows], torch.from_numpy(split.labels), split.known, k).numpy()
        named = name_categories(found, split.labels, split.known, k)
        scores.append(round(100 * float(hidden_accuracy(split, named).all), 2))
    return {"all": round(100 * every, 2), "splits": scores}


def table(name: str, ways: list[str], seeds: list[int], cells: dict[tuple[str, int, str], dict[str, object]]) -> str:
    """All of each seed, the mean, and the mean on splits."""
    rows = []
    for way in ways:
        found = [cells[name, seed, way] for seed in seeds]
        every = [float(str(cell["all"])) for cell in found]
        splits = [score for cell in found for score in cell["splits"]]  # type: ignore[attr-defined]
        mean = f"{np.mean(splits):.1f}" if splits else ""
        rows.append([way, " ".join(f"{value:.1f}" for value in every), f"{np.mean(every):.1f}", mean])
    return f"{name}\n{text_table(['way', 'All of each seed', 'mean', 'on splits'], rows)}\n"


# -- ways --------------------------------------------------------------------------------------------------------------


def fit_em(rows: Tensor, labels: Tensor, known: int, k: int, evenness: float = 0.0) -> EM:
    em = EM(rows.shape[1], known, k, evenness=evenness)
    em.fit(rows, labels)
    return em


def by_em(rows: Tensor, labels: Tensor, known: int, k: int, evenness: float = 0.0) -> Tensor:
    return fit_em(rows, labels, known, k, evenness)(rows).argmax(dim=1)


def by_assigner(rows: Tensor, labels: Tensor, known: int, k: int, name: str) -> Tensor:
    assigner = ASSIGNERS[name](rows.shape[1], known, k)
    assigner.fit(rows, labels)
    return assigner(rows).argmax(dim=1)


def by_self_training(rows: Tensor, labels: Tensor, known: int, k: int, share: float) -> Tensor:
    em = fit_em(rows, labels, known, k)
    sure, category = (em(rows) / em.temperature).softmax(dim=1).max(dim=1)
    taught = labels.clone()
    for one in range(k):
        own = torch.nonzero((category == one) & (labels < 0))[:, 0]
        if len(own):
            surest = own[sure[own].argsort(descending=True)[: max(1, int(share * len(own)))]]
            taught[surest] = one
    return by_em(rows, taught, k, k)


def by_em_then_pim(rows: Tensor, labels: Tensor, known: int, k: int) -> Tensor:
    category = labels.where(labels >= 0, by_em(rows, labels, known, k))
    weights = maximise_information(mean_directions(rows, category, k), rows, labels, 0.1, STEPS)
    return F.linear(rows, weights).argmax(dim=1)


WAYS: dict[str, Find] = {
    "balanced": partial(by_assigner, name="balanced"),
    "em": by_em,
    "pim": partial(by_assigner, name="pim"),
    "em evenness .5": partial(by_em, evenness=0.5),
    "em evenness 1": partial(by_em, evenness=1.0),
    "self-training .3": partial(by_self_training, share=0.3),
    "self-training .5": partial(by_self_training, share=0.5),
    "em, then pim": by_em_then_pim,
}


if __name__ == "__main__":
    main()
