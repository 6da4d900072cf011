"""When images that came later open a category of their own: a rule, and what the labelled images say about it.

Images are grouped by average linkage in the space where categories are compared, and groups are joined as long as that
raises their silhouette: the mean over their images of (b - a) / max(a, b), where a is the distance to the centre of the
others of the group, b to the nearest centre of a category or of another group. A group stands if it has enough images
and its silhouette is high enough. Where linkage ends, and which silhouette is enough, is chosen on labelled images:
known classes are hidden, a quarter at a time, as if nobody had seen them, and their images come again among those of
other classes, whose centres are without them then. An opening is false if its group is of no hidden class, a mixture,
or the second one of its class. Of the rules with few false openings those are taken that open the most hidden classes,
or nearly, and of these the middle one: neither what mixes by chance nor a class with near neighbours decides."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from ..text import plural
from .resplit import can_judge
from .whitening import Whitening

FALSE_OPENINGS = 0.05  # of all openings, that hidden classes may show
NEARLY = 0.95  # of the hidden classes that the best rule opens
SMALLEST = 5  # images of a group that stands
QUARTERS, ROUNDS = 4, 3  # each known class is hidden once in a round
CUTS = (0.9, 1.0, 1.1, 1.2, 1.3)  # of the usual distance between two images of a class, where linkage ends
THRESHOLDS = tuple(round(0.025 * step, 3) for step in range(36))  # silhouettes that are tried
UNCONFIRMED = 0.4  # the silhouette that a group needs if no labelled image can say; linkage ends at this cut then
UNCONFIRMED_CUT = 1.2
OTHERS = 2  # images of classes that are not hidden, for each one of a hidden class
PER_CLASS = 25  # labelled images of a class by which the rule is chosen
SETTLING = 5  # times that images are placed again after categories were opened
MOST_GROUPED = 3000  # images that are grouped at once; of more, an even sample, and the others join


@dataclass(frozen=True)
class OpeningRule:
    """When a group of images is a new category, and how that was confirmed."""

    cut: float  # mean distance (1 - cosine) of two groups, above which they are not joined
    threshold: float = UNCONFIRMED  # of the silhouette
    smallest: int = SMALLEST
    hidden: int = 0  # times that a known class was hidden
    found: int = 0  # of which a category was opened
    openings: int = 0
    false: int = 0

    @property
    def sentence(self) -> str:
        """What confirms it, in words."""
        if not self.hidden:
            return "too few labelled images to confirm when a category may be opened: only groups far from all are"
        return (
            f"{plural(self.hidden, 'time')} a known class was hidden for a moment; "
            f"{plural(self.found, 'time')} a category was opened for it; "
            f"{self.false} of {plural(self.openings, 'opening')} {'was' if self.false == 1 else 'were'} false"
        )

    def groups_that_stand(self, rows: Tensor, centres: Tensor, whitening: Whitening | None = None) -> list[Tensor]:
        """The numbers of the rows (n, P) of each group that is a new category beside those with `centres` (K, P), the
        surest one first. Rows and centres are as before whitening."""
        step = -(-len(rows) // MOST_GROUPED)
        sample = torch.arange(0, len(rows), max(step, 1))
        points, present = _compared(rows[sample], whitening), _compared(centres, whitening)
        if len(points) < self.smallest:
            return []
        away = _nearest(points, present)
        group = _groups(points, self.cut, away)
        sizes, silhouettes = group_silhouettes(points, group, away, self.smallest)
        standing = np.flatnonzero((sizes >= self.smallest) & (silhouettes >= self.threshold))
        surest = standing[np.argsort(-silhouettes[standing], kind="stable")]
        return [sample[torch.from_numpy(np.flatnonzero(group == number))] for number in surest]


def settled_centres(
    rule: OpeningRule, rows: Tensor, centres: Tensor, space: Whitening | None, assigned: Callable[[Tensor], Tensor]
) -> Tensor:
    """(G, P) the centres of categories that rows (n, P) open beside those with `centres` (K, P): the means of the rows
    that go there. `assigned` says where each goes, of all centres (K + G, P)."""
    groups = rule.groups_that_stand(rows, centres, space)
    opened = torch.stack([rows[group].mean(dim=0) for group in groups]) if groups else rows[:0]
    for _ in range(SETTLING if groups else 0):
        category = assigned(torch.cat([centres, opened.to(centres)]))
        inside = [(category == len(centres) + place).nonzero()[:, 0] for place in range(len(opened))]
        means = [rows[own].mean(dim=0) if len(own) else old for own, old in zip(inside, opened, strict=True)]
        opened = torch.stack(means)
    return opened


def choose_rule(
    rows: Tensor, labels: Tensor, centres: Tensor, sizes: Tensor, whitening: Whitening | None = None, seed: int = 0
) -> OpeningRule:
    """The rule that opens most hidden classes with few false openings.

    `rows` (n, P): unit rows of labelled images before whitening, `labels` (n,) their categories, which are rows of
    `centres` (K, P), the means of so many images (`sizes`, (K,)).

    >>> choose_rule(rows, labels, model.calibration.centres, sizes).sentence
    '45 times a known class was hidden for a moment; 41 times a category was opened for it; 1 of 42 openings was false'
    """
    random = np.random.default_rng(seed)
    kept = _some_of_each(labels.cpu().numpy(), random)
    rows, labels = rows[kept], labels[kept]
    classes = labels.cpu().numpy()
    points = _compared(rows, whitening)
    usual = usual_distance(points, classes)
    if not can_judge(classes) or np.unique(classes, return_counts=True)[1].max() < SMALLEST:
        return OpeningRule(usual)
    trials = []
    for quarter, inside in _trials(classes, sizes.cpu().numpy(), random):
        present = _compared(_without(rows[inside], labels[inside], centres, sizes, quarter), whitening)
        trials.append((quarter, inside, _nearest(points[inside], present)))
    hidden = sum(len(quarter) for quarter, _, _ in trials)
    rules = []
    for share in CUTS:
        tried = [
            _openings(points[inside], classes[inside], away, quarter, share * usual) for quarter, inside, away in trials
        ]
        for threshold in THRESHOLDS:
            openings, false, found = np.sum([_count(trial, threshold) for trial in tried], axis=0).tolist()
            if found and false <= FALSE_OPENINGS * openings:
                rules.append(OpeningRule(share * usual, threshold, SMALLEST, hidden, found, openings, false))
    if not rules:  # nothing stands that is no mistake
        return OpeningRule(usual, threshold=1.0, hidden=hidden)
    best = max(rules, key=lambda rule: (rule.found, rule.cut))
    nearly = [rule for rule in rules if rule.cut == best.cut and rule.found >= NEARLY * best.found]
    return nearly[len(nearly) // 2]  # they are in the order of their thresholds


def unconfirmed_rule(
    rows: Tensor, categories: Tensor, whitening: Whitening | None = None, seed: int = 0
) -> OpeningRule:
    """A cautious rule where labels are too few to choose one: by how alike images (n, P) of one category (n,) are."""
    kept = _some_of_each(categories.cpu().numpy(), np.random.default_rng(seed))
    return OpeningRule(
        UNCONFIRMED_CUT * usual_distance(_compared(rows[kept], whitening), categories[kept].cpu().numpy())
    )


def group_silhouettes(
    points: NDArray[np.float32], group: NDArray[np.int64], away: NDArray[np.float32], smallest: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(G,) sizes of groups and their mean silhouettes, from unit points (n, P) in groups (n,), and the distance `away`
    (n,) of each to the nearest category. Other groups count from `smallest` images on."""
    sizes = np.bincount(group)
    sums = np.zeros((len(sizes), points.shape[1]), dtype=np.float64)
    np.add.at(sums, group, points)
    own = 1 - (points * _unit(sums[group] - points)).sum(axis=1)
    large = np.flatnonzero(sizes >= smallest)
    if len(large) > 1:
        cosine = points @ _unit(sums[large]).T.astype(np.float32)  # (n, large groups)
        cosine[group[:, None] == large] = -1.0
        away = np.minimum(away, 1 - cosine.max(axis=1))
    silhouette = (away - own) / np.maximum(np.maximum(away, own), 1e-12)
    return sizes, np.bincount(group, weights=silhouette) / np.maximum(sizes, 1)


def usual_distance(points: NDArray[np.float32], classes: NDArray[np.int64]) -> float:
    """The median over classes of the mean distance between two different images of a class; 1 if no class has two."""
    means = []
    for one in np.unique(classes):
        inside = points[classes == one].astype(np.float64)
        n = len(inside)
        if n > 1:
            means.append(1 - (np.square(inside.sum(axis=0)).sum() - n) / (n * (n - 1)))
    return float(np.median(means)) if means else 1.0


# -- hidden classes ----------------------------------------------------------------------------------------------------


def _trials(
    classes: NDArray[np.int64], sizes: NDArray[np.int64], random: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Classes that are hidden together, and the images that come then: theirs, and as many of some other classes as can
    go from these, whose categories have so many images (`sizes`)."""
    names = np.unique(classes)
    rows_of = {int(name): random.permutation(np.flatnonzero(classes == name)) for name in names}
    for _ in range(ROUNDS):
        for quarter in np.array_split(random.permutation(names), min(QUARTERS, len(names))):
            coming = [rows_of[name] for name in quarter.tolist()]
            wanted = (1 + OTHERS) * sum(map(len, coming))
            for name in random.permutation(np.setdiff1d(names, quarter)).tolist():
                if sum(map(len, coming)) < min(wanted, MOST_GROUPED):
                    coming.append(rows_of[name][: sizes[name] // 2])
            yield quarter, np.concatenate(coming)[:MOST_GROUPED]


def _without(rows: Tensor, labels: Tensor, centres: Tensor, sizes: Tensor, hidden: NDArray[np.int64]) -> Tensor:
    """(K, P) centres without these rows (m, P) of theirs (`labels`, (m,)); zeros for `hidden` ones."""
    sums = torch.zeros_like(centres).index_add_(0, labels, rows.to(centres))
    count = labels.bincount(minlength=len(centres))
    left = (sizes - count).clamp(min=1).to(centres)[:, None]
    remaining = (centres * sizes.to(centres)[:, None] - sums) / left
    remaining[torch.from_numpy(hidden)] = 0.0
    return remaining


def _openings(
    points: NDArray[np.float32], classes: NDArray[np.int64], away: NDArray[np.float32], hidden: NDArray[np.int64],
    cut: float,
) -> list[tuple[float, int | None]]:  # fmt: skip
    """The silhouette of each group that is large enough, and the hidden class that it is, or None. `away` (n,): how far
    the nearest category is."""
    group = _groups(points, cut, away)
    sizes, silhouettes = group_silhouettes(points, group, away, SMALLEST)
    found: list[tuple[float, int | None]] = []
    for number in np.flatnonzero(sizes >= SMALLEST):
        names, counts = np.unique(classes[group == number], return_counts=True)
        most = int(names[counts.argmax()])
        is_one = 2 * counts.max() > counts.sum() and most in hidden
        found.append((float(silhouettes[number]), most if is_one else None))
    return found


def _count(groups: list[tuple[float, int | None]], threshold: float) -> tuple[int, int, int]:
    """Openings, false ones, and hidden classes that were found, by a threshold of the silhouette."""
    opened = [of for silhouette, of in groups if silhouette >= threshold]
    found = {of for of in opened if of is not None}
    return len(opened), len(opened) - len(found), len(found)


def _some_of_each(classes: NDArray[np.int64], random: np.random.Generator) -> Tensor:
    """No more than PER_CLASS rows of each class."""
    order = random.permutation(len(classes))
    ranked = order[np.argsort(classes[order], kind="stable")]
    first = np.searchsorted(classes[ranked], classes[ranked])
    return torch.from_numpy(np.sort(ranked[np.arange(len(ranked)) - first < PER_CLASS]))


def _groups(points: NDArray[np.float32], cut: float, away: NDArray[np.float32]) -> NDArray[np.int64]:
    """(n,) the group of each of the unit points (n, P), which are so far `away` (n,) from the nearest category."""
    if len(points) < 2:
        return np.zeros(len(points), dtype=np.int64)
    group = fcluster(linkage(points, "average", metric="cosine"), cut, "distance").astype(np.int64) - 1
    while (joined := _join_two(points, group, away)) is not None:
        group = joined
    return group


def _join_two(
    points: NDArray[np.float32], group: NDArray[np.int64], away: NDArray[np.float32]
) -> NDArray[np.int64] | None:
    """Groups (n,) of which two large ones, each other's nearest, are joined, if that raises the silhouette of their
    images; None if no pair does. Linkage parts a class anywhere that is the same in all directions."""
    large = np.flatnonzero(np.bincount(group) >= SMALLEST)
    if len(large) < 2:
        return None
    centres = _unit(np.stack([points[group == number].sum(axis=0, dtype=np.float64) for number in large]))
    cosine = centres @ centres.T
    np.fill_diagonal(cosine, -np.inf)
    nearest = cosine.argmax(axis=1)
    for first in np.argsort(-cosine.max(axis=1), kind="stable"):
        second = nearest[first]
        inside = np.flatnonzero(np.isin(group, [large[first], large[second]]))
        others = np.delete(centres, [first, second], axis=0).astype(np.float32)
        limit = np.minimum(away[inside], _nearest(points[inside], others))
        apart = (group[inside] == large[second]).astype(np.int64)
        sizes, before = group_silhouettes(points[inside], apart, limit, 1)
        _, after = group_silhouettes(points[inside], np.zeros_like(apart), limit, 1)
        if after[0] > before @ sizes / len(inside):
            joined = group.copy()
            joined[inside] = large[first]
            return joined
    return None


def _nearest(points: NDArray[np.float32], centres: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n,) the distance to the nearest centre; 2, the largest, if there is none."""
    return 1 - (points @ centres.T).max(axis=1, initial=-1.0)


@torch.no_grad()
def _compared(rows: Tensor, whitening: Whitening | None) -> NDArray[np.float32]:
    """(n, P) unit rows where categories are compared; of an empty category zeros."""
    filled = rows.any(dim=1, keepdim=True)
    points = rows if whitening is None else whitening(rows)
    return F.normalize(points.float(), dim=1).where(filled, 0.0).cpu().numpy()


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
