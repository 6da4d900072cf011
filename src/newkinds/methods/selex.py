"""SelEx: contrast at every level of a hierarchy of categories. Rastegar, Salehi, Asano, Doughty, Snoek:
SelEx: Self-Expertise in Fine-Grained Generalized Category Discovery. ECCV 2024.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..precision import full_precision
from ..settings import Share
from . import losses
from .base import METHODS, Embed, Step
from .gcd import BalancedMethod

Level = tuple[NDArray[np.int64], NDArray]  # cluster of each training image (n,), centres (K_j, D)


@METHODS.register("selex")
class SelEx(BalancedMethod):
    """Self-expertise on a hierarchy of categories (Rastegar et al., ECCV 2024).

    Before each epoch k-means sorts all training images into the categories, and again into half as many, until one
    group of known classes is left. Supervised: the clusters of each level serve as labels for a part of the projection,
    the coarser the shorter. Unsupervised: a share of the contrast's target goes to images that are far away at many
    levels. The authors smooth by 1 on CUB, Cars and Herbarium 19, .5 on Aircraft and .1 elsewhere, but with the
    published feature scale. Without it take little: at 1 the other view of an image, which is near, is no target at
    all.
    """

    @dataclass
    class Config(BalancedMethod.Config):
        smoothing: Share = 0.1  # share of the target that goes to far-away images
        far: Literal["zero_one", "pair_dist", "pair_cluster"] = "zero_one"  # see `far_away`
        # most unlabelled images get the coarse cluster of another, smoothing targets are divided by the sum of the
        # wrong row, raw features are compared with radii of unit ones, and k-means as in KMeansMethod
        as_published: bool = False

    config: Config
    train_defaults: ClassVar[dict[str, Any]] = {"weight_decay": 1e-4, "decay_biases": True, "draw": "by_total"}
    backbone_defaults: ClassVar[dict[str, Any]] = {"train_blocks": 2}
    cluster: Tensor
    centres: Tensor
    radius: Tensor

    def __init__(self, config: Config, dim: int, known: int, categories: int) -> None:
        super().__init__(config, dim, known, categories)
        # The hierarchy of the current epoch, made again when training is resumed; clusters are numbered
        # through all L levels.
        self.register_buffer("cluster", torch.empty(0, 0, dtype=torch.long), persistent=False)  # (L, n)
        self.register_buffer("centres", torch.empty(0, dim), persistent=False)  # (ΣK, D)
        self.register_buffer("radius", torch.empty(0), persistent=False)  # (ΣK,)

    def on_epoch_start(self, epoch: int, embed: Embed) -> None:
        features, labels = embed(1)  # (1, n, D), (n,)
        random = np.random.RandomState(int(torch.randint(2**31, ())))
        self.keep_hierarchy(self.hierarchy(self.embedding(features[0]), labels.cpu().numpy(), random))

    def hierarchy(self, unit: Tensor, labels: NDArray, random: np.random.RandomState) -> list[Level]:
        """Levels of unit features (n, D) with labels (n,; -1: none), finest first. They are not nested."""
        from sklearn.cluster import KMeans  # slow to import

        found = self.classifier.clustering(self.categories, 1, random).fit(unit, labels)
        known, new = len(found.classes_), self.categories - len(found.classes_)
        finest, known_centres = found.labels_, found.cluster_centers_[:known]
        is_known = finest < known  # clusters of known classes come first
        look_new = int(np.sum(~is_known))  # images: there are no more new groups than that
        levels = [(finest, found.cluster_centers_)]
        while known > 1:
            known, new = known // 2, min(max(new // 2, 1), look_new)
            group = KMeans(known, n_init=10, random_state=0).fit_predict(known_centres)
            coarse = np.where(is_known, group[finest.clip(max=len(group) - 1)], -1)
            found = self.classifier.clustering(known + new, 1, random).fit(unit, coarse)
            published = self.config.as_published
            cluster = _published_order(found.labels_, is_known, labels >= 0) if published else found.labels_
            levels.append((cluster, found.cluster_centers_))
        return levels

    def keep_hierarchy(self, levels: list[Level]) -> None:
        device = self.classifier.centres.device
        first = np.cumsum([0] + [len(centres) for _, centres in levels[:-1]])[:, None]  # (L, 1)
        self.cluster = torch.from_numpy(first + np.stack([cluster for cluster, _ in levels])).to(device)
        centres = [torch.from_numpy(centres).to(device) for _, centres in levels]
        self.centres = torch.cat(centres)
        self.radius = torch.cat([_radius(c) for c in centres])

    def loss(self, step: Step) -> dict[str, Tensor]:
        features = step.encoded.feature  # (2B, D)
        cluster = self.cluster[:, step.batch.index].repeat(1, 2)  # (L, 2B), both views
        return self.loss_of(self.head(features), step.batch.labels, features.detach(), cluster)

    def loss_of(self, embedding: Tensor, labels: Tensor, features: Tensor, cluster: Tensor) -> dict[str, Tensor]:
        """The loss and its terms from unit rows (2B, P), labels (B,; -1: none), features (2B, D), clusters (L, 2B)."""
        config = self.config
        labels = labels.repeat(2)
        labelled = labels >= 0
        shares = [0.5 ** (level + 1) for level in range(len(cluster))]  # of the loss, and of the embedding's features
        with full_precision(embedding) as z:
            widths = [max(int(z.shape[1] * share), 1) for share in shares]
            distance, *of_parts = losses.prefix_distances(z, [z.shape[1], *widths])  # (2B, 2B) each
            supervised = losses.class_contrast(-distance[labelled][:, labelled] / config.sup_con_temp, labels[labelled])
            hierarchical = z.new_zeros(())
            for share, of_part, of_level in zip(shares, of_parts, cluster, strict=True):
                hierarchical = hierarchical + share * losses.class_contrast(-of_part / config.sup_con_temp, of_level)
            smooth = self.far_away(features, cluster)
            unsupervised = losses.smoothed_info_nce(distance, smooth, config.smoothing, config.info_nce_temp)
        loss = config.sup_weight * (supervised + hierarchical) / 2 + (1 - config.sup_weight) * unsupervised
        terms = {"supervised_contrastive": supervised, "hierarchical_contrastive": hierarchical}
        return {"loss": loss, **terms, "smoothed_info_nce": unsupervised}

    def far_away(self, features: Tensor, cluster: Tensor) -> Tensor:
        """(2B, 2B): how a smoothed target is spread over the other rows, from features (2B, D) and clusters (L, 2B).

        Far is: beyond the reach of the other row's cluster ("zero_one"), by distance ("pair_dist"), or by distance to
        the centre of the other row's cluster ("pair_cluster"). A level counts half as much as the next finer one.
        """
        config = self.config
        with full_precision(features) as g:
            if not config.as_published:
                g = F.normalize(g, dim=1)
            weight = 0.5 ** torch.arange(len(cluster), device=g.device, dtype=g.dtype)  # (L,)
            distance = _distances(g, g)  # (2B, 2B)
            if config.far == "zero_one":
                reach = 2 * self.radius.to(g.dtype)[cluster]  # (L, 2B): to the nearest other centre
                far = torch.einsum("l,lab->ab", weight, (distance > reach[:, None, :]).to(g.dtype))
            elif config.far == "pair_dist":
                far = weight.sum() * distance
            else:
                to_centre = _distances(g, self.centres.to(g.dtype))  # (2B, ΣK)
                far = torch.einsum("l,alb->ab", weight, to_centre[:, cluster])
            far = (far - far.min()) / (far.max() - far.min() + 1e-7)
            total = far.sum(dim=1, keepdim=True)  # (2B, 1)
            total = total.where(total > 0, 1)  # nothing is far from this row
            return far / (total.T if config.as_published else total)


def _distances(a: Tensor, b: Tensor) -> Tensor:  # (n, m), without a matrix product: exact where small too
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def _radius(centres: Tensor) -> Tensor:  # (K,) half the distance from each centre to the nearest other one
    return _distances(centres, centres).fill_diagonal_(float("inf")).amin(dim=1) / 2


def _published_order(cluster: NDArray, is_known: NDArray, is_labelled: NDArray) -> NDArray:
    """Clusters (n,) as the published code misplaces them: made with known clusters first, read as labelled first."""
    loader = np.argsort(~is_labelled, kind="stable")  # row of the table at each place
    misplaced = np.empty_like(cluster)
    misplaced[loader] = cluster[loader[np.argsort(~is_known[loader], kind="stable")]]
    return misplaced
