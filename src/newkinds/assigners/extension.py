"""Categories that a model does not know, beside those that it does: they were opened since, or made by a person."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..precision import full_precision
from .base import Assignment
from .calibration import Calibration
from .whitening import Whitening


class Extension(nn.Module):
    """The centres of more categories than a model has. An image goes to one of these if its centre is nearer than that
    of the category which the model gives, in the space where categories are compared; what is said about that is by the
    same calibration, among all centres.

    >>> extension = Extension(model.calibration, centres)              # (E, P): categories K, K+1 … K+E-1
    >>> model.assign(features, extension).category
    """

    centres: Tensor

    def __init__(self, calibration: Calibration, others: Tensor) -> None:
        """`others` (E, P): means of unit rows before whitening; zeros for a category that is empty."""
        super().__init__()
        self.of_model = len(calibration.centres)
        self.register_buffer("centres", torch.cat([calibration.centres, others.to(calibration.centres)]))  # (K + E, P)

    def forward(
        self,
        rows: Tensor,
        assignment: Assignment,
        calibration: Calibration,
        whitening: Whitening | None = None,
        space: Whitening | None = None,
    ) -> Assignment:
        """What the model says about unit rows (n, P), before whitening, among all categories. `space`: where categories
        are compared."""
        category = self.nearest(rows, assignment.category, space)
        return calibration(rows, replace(assignment, category=category), whitening, self.centres)

    def nearest(self, rows: Tensor, category: Tensor, space: Whitening | None = None) -> Tensor:
        """(n,) the category of the model, or the other one that is nearer than that."""
        if len(self.centres) == self.of_model:
            return category
        with full_precision(rows) as x:
            centres = self.centres.to(x.dtype)
            filled = centres.any(dim=1)
            if space is not None:
                x, centres = space(x), space(centres)
            cosine = (x @ F.normalize(centres, dim=1).T).where(filled, -torch.inf)  # (n, K + E)
            own = cosine.gather(1, category[:, None])[:, 0]
            best, place = cosine[:, self.of_model :].max(dim=1)
        return torch.where(best > own, place + self.of_model, category)
