"""What every assigner promises."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..assigners import ASSIGNERS, Assigner, Assignment
from ..cluster.metrics import clustering_accuracy
from ..errors import NewkindsError
from .base import AskedPart, NotAsked, contract, require

DIM, KNOWN, CATEGORIES = 8, 3, 5
SEPARATED = 0.9  # accuracy on groups that lie far apart


def groups(n: int = 100, noise: float = 0.2, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Unit rows around five directions, the first three of which are known classes: rows, labels, truth."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(n) % CATEGORIES
    rows = torch.eye(CATEGORIES, DIM)[truth] + noise * torch.randn(n, DIM, generator=generator)
    labels = torch.where((truth < KNOWN) & (torch.arange(n) % 2 == 0), truth, -1)
    return F.normalize(rows, dim=1), labels, truth


def build(part: AskedPart) -> Assigner:
    """One that is fitted after training."""
    if ASSIGNERS[part.name].learnt:
        raise NotAsked("the loss of a method learns it")
    return ASSIGNERS[part.name](DIM, KNOWN, CATEGORIES, **part.settings)


def fitted(part: AskedPart, rows: Tensor, labels: Tensor, seed: int = 0) -> Assigner:
    assigner = build(part)
    torch.manual_seed(seed)
    assigner.fit(rows, labels)
    return assigner


def category_of(assigner: Assigner, rows: Tensor) -> Tensor:
    return Assignment.of_logits(assigner(rows), assigner.temperature).category


@contract("assigner", keeper="forward")
def known_classes_keep_their_numbers(part: AskedPart) -> None:
    """Groups that lie far apart are found, and known classes keep their numbers."""
    rows, labels, truth = groups()
    assigner = fitted(part, rows, labels)
    logits = assigner(rows)
    shape = tuple(logits.shape)
    require(shape == (len(rows), CATEGORIES), f"its logits are of shape {shape}, not {(len(rows), CATEGORIES)}.")
    require(not bool(logits.isnan().any()), "some logits are NaN: a category without members has -inf.")
    found = Assignment.of_logits(logits, assigner.temperature)
    require(bool(((found.confidence > 0) & (found.confidence <= 1)).all()), "confidences are not between 0 and 1.")
    kept = (found.category[truth < KNOWN] == truth[truth < KNOWN]).double().mean().item()
    require(kept > SEPARATED, f"{100 * kept:.0f} % of the images of known classes have the number of their class.")
    right = clustering_accuracy(truth.numpy(), found.category.numpy(), known=range(KNOWN)).all
    require(right > SEPARATED, f"{100 * right:.0f} % of images are right, where groups lie far apart.")


@contract("assigner", keeper="forward")
def images_never_seen_go_to_their_like(part: AskedPart) -> None:
    """Images never seen get the category of their like."""
    rows, labels, _ = groups()
    unseen, _, truth = groups(30, noise=0.05, seed=1)
    found = category_of(fitted(part, rows, labels), unseen)
    right = clustering_accuracy(truth.numpy(), found.numpy(), known=range(KNOWN)).all
    require(right == 1, f"{100 * right:.0f} % of 30 images near the middle of their groups are right.")
    require(bool((found[truth < KNOWN] == truth[truth < KNOWN]).all()), "some of known classes have another number.")


@contract("assigner", keeper="fit")
def what_was_saved_assigns_the_same(part: AskedPart) -> None:
    """What was saved assigns the same."""
    rows, labels, _ = groups(noise=0.5)
    assigner, loaded = fitted(part, rows, labels), build(part)
    loaded.load_state_dict(assigner.state_dict())
    require(torch.equal(loaded(rows), assigner(rows)), "with its state another one gives other logits.")


@contract("assigner", keeper="fit")
def the_same_seed_finds_the_same(part: AskedPart) -> None:
    """The same seed of torch finds the same."""
    rows, labels, _ = groups(noise=0.8)
    same = torch.equal(fitted(part, rows, labels, seed=3)(rows), fitted(part, rows, labels, seed=3)(rows))
    require(same, "it does not: random numbers come from torch's generator, see newkinds.assigners.base.draw_seed.")


@contract("assigner", keeper="fit")
def few_images_are_enough(part: AskedPart) -> None:
    """Two images of each category, and one label of each known class, are enough."""
    rows, _, truth = groups(2 * CATEGORIES, noise=0.1)
    labels = torch.full((len(rows),), -1)
    labels[:KNOWN] = truth[:KNOWN]
    assigner = fitted(part, rows, labels)
    require(not bool(assigner(rows).isnan().any()), "some logits are NaN.")
    found = category_of(assigner, rows)
    require(bool(((found >= 0) & (found < CATEGORIES)).all()), f"there are {CATEGORIES} categories, not {found}.")


@contract("assigner", keeper="fit")
def a_class_without_a_label_keeps_its_number(part: AskedPart) -> None:
    """If one known class has no label, the others keep their numbers."""
    rows, labels, truth = groups(noise=0.05)
    found = category_of(fitted(part, rows, labels.where(labels != 0, -1)), rows)
    for known in range(1, KNOWN):
        require(bool((found[truth == known] == known).all()), f"images of class {known} have other numbers.")


@contract("assigner", keeper="forward")
def before_it_is_fitted_it_says_so(part: AskedPart) -> None:
    """Before it is fitted it says so, by `require_fitted`."""
    assigner = build(part)
    try:
        assigner(groups()[0])
    except NewkindsError:
        return
    require(False, "before `fit` it gives logits all the same: call self.require_fitted(…) in `forward`.")
