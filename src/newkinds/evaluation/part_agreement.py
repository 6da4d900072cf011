"""Are primitives parts? Judged on creatures, whose true parts are known for every patch.

Each way of grouping patches (the field, k-means on the same tokens, fixed cells of the image, chance) is a table of
counts, and each statistic is one of such a table:

    purity        the share of patches that lie on the commonest part of their group
    information   mutual information of group and part, over the mean of their entropies (NMI)
    consistency   how often two patches of one group, in images of two categories, lie on the same part; 0 is what
                  any two patches of two categories do, 1 is always
    beyond_place  the share of what the cell of a patch leaves unknown about its part that the group tells

And of the class token's attention: how much of it is on the creature, and how evenly it covers it.

Most patches are background, so that purity says little alone: each is also taken on the creatures' patches only. Parts
lie in similar places, so that cells know much of them: what a group tells beyond its place is what it sees."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..cluster.kmeans import KMeans
from ..data import load_table
from ..data.creatures.dataset import part_maps
from ..data.creatures.drawing import PARTS, patch_parts
from ..data.table import Table
from ..data.views import Preprocessing
from ..encoders.backbone import Backbone
from ..encoders.class_attention import class_attention
from ..encoders.encoder import Encoder
from ..encoders.organizers import ORGANIZERS
from ..errors import NewkindsError
from ..runs.config import DRAWN, Config
from ..text import text_table
from ..training.embedding import details_of
from ..training.model import Model

TOKENS_CLUSTERED = 20_000  # by k-means; the others go to the nearest centre
MOST_IMAGES = 1000  # of more, a sample is judged
FIELD, SHARES, KMEANS, CELLS, RANDOM = (
    "primitives", "primitives (shares)", "k-means on tokens", "cells of the image", "random",
)  # fmt: skip


@dataclass(frozen=True)
class Scores:
    """Of one way of grouping patches; `_creature`: on the creatures' patches alone."""

    purity: float
    information: float
    consistency: float
    beyond_place: float
    purity_creature: float
    information_creature: float
    consistency_creature: float
    beyond_place_creature: float


@dataclass(frozen=True)
class PartReport:
    """What primitives have to do with parts."""

    images: int
    patches: int
    primitives: int
    scores: dict[str, Scores]  # way of grouping → its scores
    counts: dict[str, NDArray[np.float64]]  # way of grouping → (M, P) patches

    def as_json(self) -> dict[str, Any]:
        said = {"images": self.images, "patches": self.patches, "primitives": self.primitives, "parts": list(PARTS)}
        counts = {way: np.round(table, 2).tolist() for way, table in self.counts.items()}
        return {**said, "scores": {way: asdict(score) for way, score in self.scores.items()}, "counts": counts}

    def table(self) -> str:
        names = ["purity", "NMI", "consistency", "beyond place"]
        columns = ["patches grouped by", *names, "on the creature: purity", *names[1:]]
        rows = [[way, *(f"{value:.3f}" for value in asdict(score).values())] for way, score in self.scores.items()]
        return text_table(columns, rows)


@dataclass(frozen=True)
class Foreground:
    """Where the class token looks in the last block, mean over images and heads."""

    on_creature: float  # the share of its attention to patches that is on the creature's
    patches: float  # the share of patches that are the creature's: what even attention would have
    coverage: float  # how evenly the attention is spread over the creature's patches; 1 is even, 0 a single patch


def parts_of(model: Model, config: Config) -> PartReport:
    """What the primitives of a trained model have to do with the true parts of the creatures it was trained on.

    >>> print(parts_of(newkinds.load("runs/cpf").model, newkinds.load("runs/cpf").config).table())
    """
    table, seed = _load_creatures(config), config.train.seed
    fields, tokens, grid = [], [], (0, 0)
    for seen in details_of(model.encoder, table, model.device):
        if seen.encoded.field is None:
            raise no_primitives(config)
        fields.append(seen.encoded.field.float().cpu())
        tokens.append(seen.tokens.patches.half().cpu())  # many: half of the memory
        grid = seen.tokens.grid
    parts = _parts_on_patches(table, config, model.encoder.backbone.preprocessing, grid)
    category = np.unique(np.array(table.truth), return_inverse=True)[1]
    return part_report(torch.cat(fields).numpy(), torch.cat(tokens), parts, category, grid, seed)


def foreground_of(backbone: Backbone, config: Config, device: torch.device) -> Foreground:
    """How much of the class token's attention is on the creatures; an error if the backbone has no class token."""
    table, weights, grid = _load_creatures(config), [], (0, 0)
    with class_attention(backbone) as looks:
        for seen in details_of(Encoder(backbone, ORGANIZERS["none"](backbone.dim)), table, device):
            weights.append(looks.pop().mean(dim=1).float().cpu())  # (b, N)
            grid = seen.tokens.grid
    creature = _parts_on_patches(table, config, backbone.preprocessing, grid) > 0  # (n, N)
    return foreground(torch.cat(weights).numpy(), creature)


def foreground(weights: NDArray, creature: NDArray[np.bool_]) -> Foreground:
    """Of attention weights (n, N) and where the creature is (n, N); images without any patch of it do not count."""
    some = creature.any(axis=1)
    weights, creature = weights[some], creature[some]
    inside = np.where(creature, weights, 0)  # (n, N)
    share = inside.sum(axis=1) / weights.sum(axis=1)
    of = inside / np.maximum(inside.sum(axis=1, keepdims=True), 1e-12)
    entropy = -(of * np.log(np.where(of > 0, of, 1))).sum(axis=1)
    size = creature.sum(axis=1)
    coverage = entropy[size > 1] / np.log(size[size > 1])
    return Foreground(float(share.mean()), float(creature.mean()), float(coverage.mean()) if len(coverage) else 1.0)


def _load_creatures(config: Config) -> Table:
    """The creatures of a run, or a sample of them."""
    if config.data["name"] not in DRAWN:
        raise NewkindsError(f"the true parts of {config.data['name']} are not known, only those of {DRAWN[0]}.")
    table = load_table(config.data)
    sample = np.random.default_rng(config.train.seed).permutation(len(table))[:MOST_IMAGES]
    return table.rows(np.sort(sample).tolist())


def _parts_on_patches(
    table: Table, config: Config, preprocessing: Preprocessing, grid: tuple[int, int]
) -> NDArray[np.uint8]:
    """(n, N): the true part of each patch, as the backbone sees the images."""
    settings = {name: value for name, value in config.data.items() if name != "name"}
    maps = preprocessing.centre_of_maps(torch.from_numpy(part_maps(table.paths, **settings)))
    return patch_parts(maps.numpy(), grid).reshape(len(table), -1)


def no_primitives(config: Config) -> NewkindsError:
    name = config.organizer["name"]
    return NewkindsError(f"the organizer '{name}' has no primitives: train with --organizer cpf to see some.")


def part_report(
    field: NDArray, tokens: torch.Tensor, parts: NDArray, category: NDArray[np.int64], grid: tuple[int, int], seed: int
) -> PartReport:
    """A field (n, N, M) and other groupings of the same tokens (n, N, D), judged by parts (n, N) and category (n,)."""
    images, patches, count = field.shape
    rng = np.random.default_rng(seed)
    flat = tokens.flatten(0, 1).float()
    some = flat[torch.from_numpy(rng.permutation(len(flat))[:TOKENS_CLUSTERED])]
    clusters = KMeans(count, n_init=3, random_state=seed).fit(some).predict(flat)
    place = np.tile(cells(grid, count), (images, 1))  # (n, N)
    groups = {
        FIELD: field.argmax(axis=2),
        SHARES: field,
        KMEANS: clusters.reshape(images, patches),
        CELLS: place,
        RANDOM: rng.integers(count, size=(images, patches)),
    }
    kinds = np.repeat(category[:, None], patches, axis=1)  # (n, N)
    by_kind = {way: count_patches(group, parts, kinds, count) for way, group in groups.items()}
    by_place = {way: count_patches(group, parts, place, count) for way, group in groups.items()}
    scores = {way: scores_of(by_kind[way], by_place[way]) for way in groups}
    counts = {way: table.sum(axis=0) for way, table in by_kind.items()}
    return PartReport(images, images * patches, count, scores, counts)


def cells(grid: tuple[int, int], count: int) -> NDArray[np.int64]:
    """(N,): the patches of a grid in `count` equal cells, as square as can be.

    >>> cells((2, 4), 4).reshape(2, 4).tolist()
    [[0, 0, 1, 1], [2, 2, 3, 3]]
    """
    across = max(divisor for divisor in range(1, int(count**0.5) + 1) if count % divisor == 0)
    down = count // across
    row, column = np.arange(grid[0]) * down // grid[0], np.arange(grid[1]) * across // grid[1]
    return (row[:, None] * across + column).ravel()


def count_patches(group: NDArray, parts: NDArray, of: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """(C, M, P): patches of each category or cell `of` (n, N), group and part (n, N).

    `group` (n, N), or shares (n, N, M) of all groups in each patch.
    """
    shares: NDArray[np.float64] = group if group.ndim == 3 else np.eye(count)[group]  # (n, N, M)
    kinds = int(of.max()) + 1
    where = (of * len(PARTS) + parts).ravel()  # (n·N,)
    counts = [np.bincount(where, share.ravel(), kinds * len(PARTS)) for share in np.moveaxis(shares, 2, 0)]
    return np.stack(counts).astype(float).reshape(count, kinds, len(PARTS)).transpose(1, 0, 2)


def scores_of(by_kind: NDArray[np.float64], by_place: NDArray[np.float64]) -> Scores:
    """All statistics of tables of counts (C, M, P) by category and by cell, whose part 0 is the background."""
    values = []
    for first in (0, 1):
        kinds, places = by_kind[:, :, first:], by_place[:, :, first:]
        values += [purity(kinds), information(kinds), consistency(kinds), beyond_place(places)]
    return Scores(*values)


def purity(table: NDArray[np.float64]) -> float:
    joint = table.sum(axis=0)  # (M, P)
    return float(joint.max(axis=1).sum() / joint.sum())


def information(table: NDArray[np.float64]) -> float:
    joint = table.sum(axis=0) / table.sum()  # (M, P)
    entropies = _entropy(joint.sum(axis=1)) + _entropy(joint.sum(axis=0))
    return float(2 * (entropies - _entropy(joint.ravel())) / entropies) if entropies > 0 else 0.0


def consistency(table: NDArray[np.float64]) -> float:
    """Groups count by how many patches they have; one that occurs in a single category does not."""
    agreement, pairs = _between_categories(table)  # (M,) each
    of_any, any_pairs = _between_categories(table.sum(axis=1, keepdims=True))  # of patches whatever their group
    size = table.sum(axis=(0, 2)) * (pairs > 0)
    if not size.sum() or any_pairs[0] == 0:
        return 0.0
    chance = of_any[0] / any_pairs[0]
    observed = (size * agreement / np.maximum(pairs, 1e-12)).sum() / size.sum()
    return float((observed - chance) / (1 - chance)) if chance < 1 else 0.0


def beyond_place(table: NDArray[np.float64]) -> float:
    """I(group; part | cell) / H(part | cell) of counts (cells, M, P); by chance a little above 0, as random shows."""
    told = unknown = 0.0
    for joint in table:  # (M, P) of each cell
        if joint.sum():
            share = joint / joint.sum()
            of_part = _entropy(share.sum(axis=0))
            told += joint.sum() * (of_part + _entropy(share.sum(axis=1)) - _entropy(share.ravel()))
            unknown += joint.sum() * of_part
    return told / unknown if unknown else 0.0


def _between_categories(table: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    """Of each group (C, M, P): pairs of patches of two categories on the same part, and pairs of two categories."""
    same = (table.sum(axis=0) ** 2 - (table**2).sum(axis=0)).sum(axis=1)
    of_category = table.sum(axis=2)  # (C, M)
    return same, of_category.sum(axis=0) ** 2 - (of_category**2).sum(axis=0)


def _entropy(shares: NDArray[np.float64]) -> float:
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())
