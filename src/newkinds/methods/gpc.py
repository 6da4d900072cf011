"""GPC: contrast with the prototypes of clusters, which split and merge while training: K is found.
Zhao, Wen, Han: Learning Semi-supervised Gaussian Mixture Models for Generalized Category Discovery. ICCV 2023.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ..assigners.calibration import centres_of
from ..assigners.centres import FoundKMeans
from ..assigners.whitening import whitening_of
from ..cluster.split_merge import Group, Prior, SplitMerge
from ..errors import NewkindsError
from ..precision import full_precision
from ..settings import AtLeastOne, NonNegative, Positive, WholeNumber
from .base import METHODS, Embed, Step
from .gcd import GCD

# Both chosen on frozen features of 60 bird species whose number was known; docs/methods.md has figures of 60 others.
SHRINKAGE = 0.1  # of the covariance within known classes
SURE_OF_SHAPE = 10  # the prior of a cluster's shape counts as so many images per dimension
PUBLISHED_PRIOR, PUBLISHED_SMALLEST = (1e-4, 0.005), 6  # kappa and scale; images on each side of a split


@METHODS.register("gpc")
class GPC(GCD):
    """GCD's losses and a contrast with prototypes, whose number is found while training (Zhao et al., ICCV 2023).

    `--k` is only where it starts. Before each epoch k-means sorts all training images into clusters; each new cluster
    may then split in two or merge with the nearest one, as a mixture of Gaussians would have it. Clusters of known
    classes never split, and no two of them merge. Every image is drawn to the prototype of its cluster, with a
    temperature that is higher for loose clusters. In the end k-means finds as many categories as there are then.
    Clusters are found in the first principal components (`pca_dim`). As published, they are found in all features,
    and every epoch starts from `--k` again, as does k-means in the end.
    """

    @dataclass
    class Config(GCD.Config):
        prototype_weight: NonNegative = 1.0
        prototype_temp: Positive = 1.0  # mean over clusters
        output_dim: AtLeastOne = 128
        kmeans_iterations: AtLeastOne = 100
        warmup_epochs: WholeNumber = 1  # without prototypes, in which the number of categories stays
        pca_dim: AtLeastOne = 64  # at most; K clusters need no more than K
        concentration: Positive = 1.0  # the larger, the more categories
        smallest_side: AtLeastOne = 5  # images on each side of a split
        # the number that was found is forgotten; splits and merges as in SplitMerge; the prior does not know how wide
        # the known classes are; a side has 6 images; an image without a label is drawn to the nearest prototype, and
        # that of merged clusters is halfway between the two; and k-means as in KMeansMethod
        as_published: bool = False

    config: Config
    train_defaults: ClassVar[dict[str, Any]] = {**GCD.train_defaults, "epochs": 60, "batch_size": 256}
    classifier: FoundKMeans
    cluster: Tensor
    prototypes: Tensor
    temperature: Tensor

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        # Of the current epoch, found again when training is resumed; how many there are is kept (`FoundKMeans.found`).
        self.register_buffer("cluster", torch.empty(0, dtype=torch.long), persistent=False)  # (n,)
        self.register_buffer("prototypes", torch.empty(0, dim), persistent=False)  # (K, D) unit rows
        self.register_buffer("temperature", torch.empty(0), persistent=False)  # (K,)

    def kmeans(self, dim: int) -> FoundKMeans:
        config = self.config
        settings = (config.kmeans_restarts, config.kmeans_iterations, config.as_published)
        return FoundKMeans(dim, self.known, self.categories, *settings)

    def on_epoch_start(self, epoch: int, embed: Embed) -> None:
        if epoch < self.config.warmup_epochs:
            return
        features, labels = embed("centre")  # (1, n, D), (n,)
        unit, labels = self.embedding(features[0]), labels.to(features.device)
        groups = self.groups(unit, labels, int(self.classifier.found) or self.categories)
        if not self.config.as_published:
            self.classifier.found.fill_(max(len(groups), self.known))
        self.keep(unit, labels, groups)

    def groups(self, unit: Tensor, labels: Tensor, categories: int) -> list[Group]:
        """The clusters of unit features (n, D) with labels (n,; -1: none), after splits and merges."""
        config, published = self.config, self.config.as_published
        classes, free = len(labels[labels >= 0].unique()), int((labels < 0).sum())
        most = classes + free
        # If the last new cluster were to merge, none would be left that could split: known ones do not.
        fewest = min(self.known + 1, most)
        categories = min(categories if published else max(categories, fewest), most)
        points = unit if published else principal(unit, min(config.pca_dim, categories))  # (n, d)
        random = np.random.RandomState(int(torch.randint(2**31, ())))
        found = self.classifier.clustering(categories, config.kmeans_restarts, random).fit(points, labels)
        cluster, points, labels = torch.from_numpy(found.labels_), points.cpu().double(), labels.cpu()
        if published:
            points = points - points.mean(dim=0)
            prior, smallest = Prior(PUBLISHED_PRIOR[0], points.shape[1] + 1, PUBLISHED_PRIOR[1]), PUBLISHED_SMALLEST
        else:
            # not by labelled images: training draws these together
            points, prior = by_known_classes(points, cluster, inside=(cluster < classes) & (labels < 0))
            smallest = config.smallest_side
        change = SplitMerge(prior, config.concentration, smallest, published)
        return change(points, cluster, classes, fewest, most)

    def keep(self, unit: Tensor, labels: Tensor, groups: list[Group]) -> None:
        """Prototypes, temperatures and clusters of the epoch, from unit features (n, D), labels (n,) and all groups."""
        published = self.config.as_published
        parts = [group if published else (torch.cat(group),) for group in groups]
        centres = torch.stack([torch.stack([unit[rows].mean(dim=0) for rows in group]).mean(dim=0) for group in parts])
        if published:  # groups overlap; without a product, which is rounded: two are the same
            away = torch.cdist(unit, centres, compute_mode="donot_use_mm_for_euclid_dist")  # (n, K)
            cluster = away.argmin(dim=1)
        else:
            cluster = torch.empty(len(unit), dtype=torch.long, device=unit.device)
            for number, (rows,) in enumerate(parts):
                cluster[rows] = number
        self.prototypes = F.normalize(centres, dim=1)
        self.temperature = temperatures(unit, cluster, centres, self.config.prototype_temp, published)
        if published:  # known classes neither split nor merge: theirs are the first groups, in their order
            labelled = labels >= 0
            cluster[labelled] = labels[labelled].unique(return_inverse=True)[1]
        self.cluster = cluster

    def loss(self, step: Step) -> dict[str, Tensor]:
        features = step.encoded.feature  # (2B, D)
        terms = self.loss_of(self.head(features), step.batch.labels)
        if step.progress.epoch < self.config.warmup_epochs:
            return terms
        contrast = self.prototype_contrast(features, self.cluster[step.batch.index].repeat(2))
        loss = terms["loss"] + self.config.prototype_weight * contrast
        found = contrast.new_tensor(len(self.prototypes))
        return {**terms, "loss": loss, "prototype_contrast": contrast, "categories": found}

    def prototype_contrast(self, features: Tensor, cluster: Tensor) -> Tensor:
        """Cross-entropy of features (2B, D) and the prototypes of their clusters (2B,), by cosine and temperature."""
        with full_precision(features) as f:
            cosines = F.normalize(f, dim=1) @ self.prototypes.to(f.dtype).T  # (2B, K)
            return F.cross_entropy(cosines / self.temperature.to(f.dtype), cluster)


def principal(unit: Tensor, dim: int) -> Tensor:
    """The first `dim` principal components (n, ≤ dim) of rows (n, D), around their mean."""
    away = unit - unit.mean(dim=0)
    axes = torch.linalg.eigh((away.T @ away).cpu().double()).eigenvectors.flip(1)[:, :dim]  # largest first
    return away @ axes.to(away)


def by_known_classes(points: Tensor, cluster: Tensor, inside: Tensor) -> tuple[Tensor, Prior]:
    """Points (n, d) scaled so that known classes are equally wide in all directions, and a prior for their clusters.

    A new category is expected to be as wide as the known classes are, by the images that are `inside` (n,) their
    clusters, and to lie as far from the mean as all clusters do. The published prior knows neither.
    """
    d = points.shape[1]
    for classes in (cluster.where(inside, -1), cluster):
        with suppress(NewkindsError):  # no two images differ
            mean, map = whitening_of(points, classes, SHRINKAGE)
            points = (points - mean) @ map
            rows, classes = points[classes >= 0], classes[classes >= 0]
            away = rows - centres_of(rows, classes, int(classes.max()) + 1)[classes]
            width = away.square().sum() / (len(rows) - len(classes.unique())) / d
            far = centres_of(points, cluster, int(cluster.max()) + 1).square().sum(dim=1).mean() / d
            sure = SURE_OF_SHAPE * d
            return points, Prior(float(width / far.clamp(min=width)), d + 1 + sure, float(sure * width))
    return points, Prior(1.0, d + 1, 1.0)


def temperatures(
    points: Tensor, cluster: Tensor, centres: Tensor, temperature: float, published: bool = False
) -> Tensor:
    """(K,) higher for loose and small clusters, from points (n, D) in clusters (n,) around centres (K, D).

    A cluster of one point gets the highest of those of several; so does an empty one, but as published the lowest.
    """
    sizes = cluster.bincount(minlength=len(centres))  # (K,)
    sums = points.new_zeros(len(centres)).index_add_(0, cluster, (points - centres[cluster]).norm(dim=1))
    loose = sums / sizes.clamp(min=1) / (sizes + 10).to(sums).log()
    loose = loose.where(sizes != 1 if published else sizes > 1, loose.where(sizes > 1, 0).max())
    loose = loose.clamp(loose.quantile(0.1), loose.quantile(0.9))
    relative = loose / loose.mean() if loose.any() else torch.ones_like(loose)
    return temperature * relative.clamp(min=0.01)  # copies of one image are not loose at all
