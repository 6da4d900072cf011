"""Encoder, organizer, embedding, assigner, calibration and people's edits as one module: pixels in, categories out."""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from ...assigners import Assignment
from ...console import silence
from ...errors import NewkindsError, reason_of
from ..edits import JUNK
from ..placing import Placer

MOST_IMAGES = 4096  # at once, below which nothing that is computed is divided into blocks of rows


class Answer(NamedTuple):
    """What an exported model says about n images; the names are those of its outputs."""

    category: Tensor  # (n,) int64, the place of the category in `labels.json`
    confidence: Tensor  # (n,) that it is right
    unlike: Tensor  # (n,) distance to its category, above 1: unlike every category
    probabilities: Tensor  # (n, K) shares of all categories, in the order of `labels.json`; not calibrated
    embedding: Tensor  # (n, P) unit rows: the space in which images are compared


class Classifier(nn.Module):
    """A finished model from pixels to categories as people see them.

    >>> Classifier(placer)(torch.rand(2, 3, 64, 64)).category
    """

    mean: Tensor
    std: Tensor

    def __init__(self, placer: Placer) -> None:
        super().__init__()
        self.model = model = placer.model
        self.extension = placer.extension
        self.edited = Edited(placer)
        self.space = model.space
        model.encoder.backbone.dtype = torch.float32  # what is exported runs on any machine
        preprocessing = model.encoder.backbone.preprocessing
        for name, values in (("mean", preprocessing.mean), ("std", preprocessing.std)):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1))
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Answer:
        """Of images (n, 3, H, W) between 0 and 1, resized and cropped but not normalised."""
        model, assigner = self.model, self.model.chosen_assigner
        rows = model.rows(model.encoder((images - self.mean) / self.std).feature)
        embedding = rows if model.whitening is None else model.whitening(rows)
        logits = model.naming(assigner.logits(embedding))  # (n, K)
        shares = (logits / assigner.temperature).softmax(dim=1)
        found = Assignment(logits.argmax(dim=1), shares.amax(dim=1), torch.full_like(shares[:, 0], torch.nan))
        every = len(self.edited.found)
        of_model = F.one_hot(found.category, every).to(shares)  # (n, K + E)
        if model.calibration.fitted:
            found = self.extension(rows, found, model.calibration, model.whitening, self.space)
        one_hot = F.one_hot(found.category, every).to(shares)
        if every > model.categories:  # what is nearer to a category that the model does not know has its share there
            shares = F.pad(shares, (0, every - model.categories))
            shares = shares + (one_hot - of_model) * (shares * of_model).sum(dim=1, keepdim=True)
        compared = rows if self.space is None else self.space(rows)
        category = self.edited(one_hot, compared).argmax(dim=1)
        unlike = found.unlike
        assert unlike is not None
        return Answer(category, found.confidence, unlike, self.edited(shares, compared), compared)


class Edited(nn.Module):
    """Shares of the categories that were found → shares of those that people see, as `Lens` has it: merged ones are
    added up, and the share of a split one goes to the part whose images are nearest."""

    def __init__(self, placer: Placer) -> None:
        super().__init__()
        lens = placer.lens
        self.found = placer.ids.tolist()  # (K + E,)
        k = len(self.found)
        made = {number for step in lens.steps for number in step.into}
        junk = [JUNK] if JUNK in made else []
        self.ids = [*sorted(lens.names), *junk]  # (K',) of the columns in the end
        every = [*self.found, *sorted({*made, *lens.names} - {*self.found, JUNK}), *junk]  # that there ever were
        place = {number: column for column, number in enumerate(every)}
        identity = torch.eye(len(every))
        maps, splits = [identity[:k]], []  # a map before, between and after the splits
        for step in lens.steps:
            here = [place[category] for category in step.categories]
            if step.centres is None:
                onto = identity.clone()
                onto[here] = identity[place[step.into[0]]]
                maps[-1] = maps[-1] @ onto
            else:
                maps.append(identity)
                splits.append(Split(step.centres, identity[here[0]], identity[[place[part] for part in step.into]]))
        maps[-1] = maps[-1] @ identity[:, [place[category] for category in self.ids]]
        self.splits = nn.ModuleList(splits)
        self.changes = bool(splits) or not torch.equal(maps[0], torch.eye(k))
        for number, onto in enumerate(maps):
            self.register_buffer(f"map_{number}", onto)

    def forward(self, shares: Tensor, embedding: Tensor) -> Tensor:
        """(n, K), unit rows (n, P) → (n, K')"""
        if not self.changes:
            return shares
        shares = shares @ self.get_buffer("map_0")
        for number, split in enumerate(self.splits, start=1):
            shares = split(shares, embedding) @ self.get_buffer(f"map_{number}")
        return shares


class Split(nn.Module):
    """The share of one category goes to one of its parts."""

    centres: Tensor
    column: Tensor
    parts: Tensor

    def __init__(self, centres: NDArray[np.float32], column: Tensor, parts: Tensor) -> None:
        super().__init__()
        self.register_buffer("centres", torch.from_numpy(centres).float())  # (parts, P)
        self.register_buffer("column", column)  # (T,) 1 at the category
        self.register_buffer("parts", parts)  # (parts, T) 1 at each part

    def forward(self, shares: Tensor, embedding: Tensor) -> Tensor:
        """(n, T), (n, P) → (n, T)"""
        nearest = (embedding @ self.centres.T).argmax(dim=1)  # (n,)
        of_category = (shares * self.column).sum(dim=1, keepdim=True)  # (n, 1)
        return shares * (1 - self.column) + of_category * self.parts[nearest]


def capture(classifier: Classifier, size: int) -> ExportedProgram:
    """The classifier as a graph of torch operations, for any number of images."""
    images = torch.rand(3, 3, size, size)
    shapes = {"images": {0: Dim("batch", min=1, max=MOST_IMAGES)}}
    error: Exception | None = None
    for strict in (False, True):  # the second understands some code that the first does not
        try:
            with silence(), torch.no_grad():
                return torch.export.export(classifier, (images,), dynamic_shapes=shapes, strict=strict)
        except Exception as problem:  # torch raises nearly anything
            error = error or problem
    assert error is not None
    raise NewkindsError(
        "this model cannot be written down as one graph: something in it decides by the values in a tensor, or by how "
        f"many images there are. torch says: {reason_of(error)[:300]}"
    )
