"""Losses as pure functions of tensors, in float32 under autocast; zeros with a graph if there is nothing to compare.

Rows that hold both views of B images are view-major: row i and row (i + B) mod 2B show the same image.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from ..precision import full_precision

__all__ = [
    "class_contrast", "info_nce", "labelled_cross_entropy", "mean_entropy_gap", "prefix_distances",
    "self_distillation", "sinkhorn", "smoothed_info_nce", "soft_cross_entropy", "supervised_contrastive",
    "swapped_cross_entropy",
]  # fmt: skip


def supervised_contrastive(z: Tensor, y: Tensor, temperature: float = 0.07, against: Tensor | None = None) -> Tensor:
    """Pull rows of one class together and away from all others (SupCon, Khosla et al., NeurIPS 2020).

    `z` (n, d) are unit rows, both views of each image; `y` (n,) their classes. Rows with -1 are left out. `against`
    (n, d): what they are compared with, if not with each other; never a row with the one in its place there.

    >>> h = F.normalize(torch.randn(8, 16), dim=1)                  # two views of four images
    >>> supervised_contrastive(h, torch.tensor([0, 1, 0, 2]).repeat(2))
    """
    labelled = y >= 0
    with full_precision(z[labelled]) as z:
        others = z if against is None else against[labelled].to(z.dtype)
        return class_contrast(z @ others.T / temperature, y[labelled])


def class_contrast(logits: Tensor, y: Tensor) -> Tensor:
    """The same from how alike the rows are, (n, n); a row whose class has no other row is a negative only."""
    n = len(logits)
    if n < 2:
        return logits.sum() * 0.0
    itself = torch.eye(n, dtype=torch.bool, device=logits.device)
    others = logits.masked_fill(itself, float("-inf"))
    log_share = logits - others.logsumexp(dim=1, keepdim=True)  # (n, n), log softmax over the others
    positive = (y[:, None] == y[None, :]) & ~itself
    positives = positive.sum(dim=1)  # (n,)
    per_row = -(log_share * positive).sum(dim=1) / positives.clamp(min=1)  # (n,), 0 without positives
    return per_row.sum() / (positives > 0).sum().clamp(min=1)


def info_nce(z: Tensor, temperature: float = 1.0, against: Tensor | None = None) -> Tensor:
    """Find the other view of an image among rows `z` (2B, d) by cosine (InfoNCE; SimCLR, Chen et al., ICML 2020).

    `against` (2B, d): look for it among these rows, except the one in the same place.
    """
    if len(z) == 0:
        return z.sum() * 0.0
    with full_precision(z) as z:
        unit = F.normalize(z, dim=1)
        others = unit if against is None else F.normalize(against.to(z.dtype), dim=1)
        logits = (unit @ others.T / temperature).fill_diagonal_(-torch.inf)  # (2B, 2B)
        return F.cross_entropy(logits, _partner(len(z), z.device))


def labelled_cross_entropy(logits: Tensor, y: Tensor, temperature: float = 0.1) -> Tensor:
    """Cross-entropy of softmax(logits / temperature), averaged over the rows with a label (y = -1: none)."""
    with full_precision(logits) as logits:
        total = F.cross_entropy(logits / temperature, y, ignore_index=-1, reduction="sum")
        return total / (y >= 0).sum().clamp(min=1)


def self_distillation(logits: Tensor, teacher_temp: float, student_temp: float = 0.1) -> Tensor:
    """Each view predicts the sharper, detached class distribution of the other view of its image: logits (2B, K)."""
    with full_precision(logits) as logits:
        return swapped_cross_entropy(logits, (logits.detach() / teacher_temp).softmax(dim=1), student_temp)


def swapped_cross_entropy(logits: Tensor, targets: Tensor, temperature: float = 0.1) -> Tensor:
    """Each view predicts what was made of the other view of its image: logits and targets (2B, K), rows of sum 1."""
    return soft_cross_entropy(logits, targets[_partner(len(logits), logits.device)], temperature)


def soft_cross_entropy(logits: Tensor, targets: Tensor, temperature: float = 0.1) -> Tensor:
    """Cross-entropy of softmax(logits / temperature) with targets of its own for each row: (n, K) both, of sum 1."""
    if len(logits) == 0:
        return logits.sum() * 0.0
    with full_precision(logits) as logits:
        return -(targets * (logits / temperature).log_softmax(dim=1)).sum(dim=1).mean()


@torch.no_grad()
def sinkhorn(logits: Tensor, iterations: int = 3, epsilon: float = 0.05) -> Tensor:
    """Soft assignments (n, K) of rows by their logits that use all categories about equally (Cuturi, NeurIPS 2013).

    Shares are scaled to equal totals of the categories and, last, of the rows, so that these sum to exactly 1; the more
    iterations, the more equal the categories. A small `epsilon` keeps each row near its largest logit.

    >>> targets = sinkhorn(classifier(features))
    """
    with full_precision(logits) as logits:
        shares = logits / epsilon  # (n, K), logarithms: the exponential of 1 / epsilon may be too large
        for _ in range(iterations if len(logits) else 0):
            shares = shares.log_softmax(dim=0).log_softmax(dim=1)
        return shares.exp()


def mean_entropy_gap(logits: Tensor, student_temp: float = 0.1) -> Tensor:
    """How far the mean prediction of logits (n, K) is from using all categories alike: log K − H(mean softmax), ≥ 0."""
    n, categories = logits.shape
    if n == 0:
        return logits.sum() * 0.0
    with full_precision(logits) as logits:
        # The mean is taken in log space: a category that no row predicts has p = exp(log p) = 0 and a
        # finite log p, so neither p log p nor its gradient p (1 + log p) is NaN.
        log_rows = (logits / student_temp).log_softmax(dim=1)  # (n, K)
        log_mean = log_rows.logsumexp(dim=0) - math.log(n)  # (K,)
        return math.log(categories) + (log_mean.exp() * log_mean).sum()


def smoothed_info_nce(distance: Tensor, smooth: Tensor, share: float, temperature: float = 1.0) -> Tensor:
    """InfoNCE by distance (2B, 2B), with a share of the target spread over other rows as `smooth` (2B, 2B) says.

    One number in its place spreads it evenly.
    """
    n = len(distance)
    itself = torch.eye(n, dtype=torch.bool, device=distance.device)
    logits = (-distance / temperature).masked_fill(itself, float("-inf"))
    log_share = logits.log_softmax(dim=1).masked_fill(itself, 0.0)  # (2B, 2B)
    partner = itself.roll(n // 2, dims=0).to(distance.dtype)
    target = (1 - share) * partner + share * smooth.to(distance.dtype)
    return -(target * log_share).sum(dim=1).mean()


def prefix_distances(z: Tensor, widths: Sequence[int]) -> list[Tensor]:
    """Distances (n, n) between rows (n, d) by their first w features, for each w of `widths`; none is multiplied twice.

    ‖a‖² − 2ab + ‖b‖² is a matrix product, many times faster than differences in thousands of dimensions, but its
    rounding error is largest where distances are smallest: exactly at the positives. So it is done in float64, if the
    device has it. Equal rows have distance zero and no gradient.
    """
    if z.device.type == "mps":  # has no float64
        return [torch.cdist(z[:, :w], z[:, :w], compute_mode="donot_use_mm_for_euclid_dist") for w in widths]
    ascending = sorted({*widths, z.shape[1]})
    parts = z.double().split([stop - start for start, stop in pairwise([0, *ascending])], dim=1)
    by_width, products = {}, z.new_zeros(len(z), len(z), dtype=torch.float64)
    for width, part in zip(ascending, parts, strict=True):
        products = products + _products(part)
        by_width[width] = _distances(products).to(z.dtype)
    return [by_width[width] for width in widths]


def _products(rows: Tensor) -> Tensor:
    """rows · rowsᵀ (n, n), whose gradient (G + Gᵀ) · rows then takes one matrix product instead of two."""
    half = rows @ rows.detach().T
    return half + half.T - half.detach()


def _distances(products: Tensor) -> Tensor:
    """Between rows (n, n), from the products of all pairs."""
    squares = products.diagonal()
    squared = squares[:, None] + squares - 2 * products
    equal = squared <= 1e-14 * (squares[:, None] + squares)
    return squared.masked_fill(equal, 1.0).sqrt().masked_fill(equal, 0.0)


def _partner(n: int, device: torch.device) -> Tensor:
    """(2B,) row of the other view of each row's image."""
    if n % 2:
        raise ValueError(f"two views of each image make an even number of rows, not {n}")
    return torch.arange(n, device=device).roll(n // 2)
