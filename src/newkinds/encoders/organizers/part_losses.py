"""Losses over one vector per part of an image, as pure functions: any organizer whose slots correspond can use them.

`parts` (R, K, D) are rows of V views of B images, view-major, with `filled` (R, K): whether a part holds anything.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ...precision import full_precision


def all_min(
    parts: Tensor, filled: Tensor, labels: Tensor, temperature: float = 0.07, as_published: bool = False
) -> Tensor:
    """All parts pull rows together that belong together, only the least similar part pushes others apart.

    Rows of one label (`labels` (B,; -1: none)) or one image belong together. With the sums P over belonging rows and
    shared parts of exp(cos / τ), and M over all other rows of exp(least cos / τ), a row's loss is −log P / (P + M);
    rows without partners or without a shared part do not count. `as_published`: −log P / M, as printed, which never
    relaxes, however far apart the others are.

    >>> all_min(torch.randn(8, 12, 384), torch.ones(8, 12, dtype=torch.bool), torch.tensor([0, 0, -1, -1]))
    """
    rows = len(parts)
    with full_precision(parts) as parts:
        unit = F.normalize(parts, dim=2).transpose(0, 1)  # (K, R, D)
        logits = (unit @ unit.transpose(1, 2)).permute(1, 2, 0) / temperature  # (R, R, K)
        shared = filled[:, None] & filled[None]  # (R, R, K)
        together, itself = _belonging(labels, rows)  # (R, R)
        pull = logits.masked_fill(~(shared & together[..., None]), -torch.inf).flatten(1)  # (R, R·K)
        other = ~together & ~itself & shared.any(dim=2)  # (R, R)
        push = logits.masked_fill(~shared, torch.inf).amin(dim=2).masked_fill(~other, -torch.inf)  # (R, R)
        counts = (pull > -torch.inf).any(dim=1)  # (R,)
        if as_published:
            counts = counts & other.any(dim=1)  # nothing to divide by
        if not counts.any():
            return parts.sum() * 0.0
        attraction = pull[counts].logsumexp(dim=1)  # log P
        against = push[counts] if as_published else torch.cat([pull[counts], push[counts]], dim=1)
        return (against.logsumexp(dim=1) - attraction).mean()


def _belonging(labels: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Whether two of the rows are different views of one image or have one label, and whether they are one row."""
    image = torch.arange(len(labels), device=labels.device).repeat(rows // len(labels))  # (R,)
    label = labels[image]
    itself = torch.eye(rows, dtype=torch.bool, device=labels.device)
    alike = (label[:, None] == label) & (label[:, None] >= 0)
    return (alike | (image[:, None] == image)) & ~itself, itself


def diversity(parts: Tensor, filled: Tensor) -> Tensor:
    """Mean over pairs of an image's parts of max(0, cosine), averaged over the images that have two parts or more."""
    with full_precision(parts) as parts:
        unit = F.normalize(parts, dim=2)
        alike = (unit @ unit.transpose(1, 2)).clamp(min=0)  # (R, K, K)
        pairs = (filled[:, :, None] & filled[:, None]).triu(diagonal=1)  # (R, K, K)
        count = pairs.sum(dim=(1, 2))  # (R,)
        return ((alike * pairs).sum(dim=(1, 2)) / count.clamp(min=1)).sum() / (count > 0).sum().clamp(min=1)
