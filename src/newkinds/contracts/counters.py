"""What every way of counting categories promises."""

import numpy as np
import torch

from ..category_count import Count, count_text
from ..cluster.count import COUNTERS
from ..errors import NewkindsError
from .base import AskedPart, contract, require

CLASSES, KNOWN, EACH = 8, 4, 16


def groups(noise: float = 0.1, labelled: float = 0.5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows around eight directions, and labels of a share of the first four."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(CLASSES), EACH)
    points = rng.normal(size=(CLASSES, 16))[truth] + noise * rng.normal(size=(len(truth), 16))
    given = (truth < KNOWN) & (np.arange(len(truth)) % EACH < labelled * EACH)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    return unit.astype(np.float32), np.where(given, truth, -1)


@contract("counter")
def the_answer_is_possible(part: AskedPart) -> None:
    """It gives a `Count` that names it, with an answer from the known classes to the images."""
    features, y = groups()
    before = features.copy(), y.copy()
    count = COUNTERS[part.name](features, y)
    require(isinstance(count, Count), f"it returns a {type(count).__name__}, not a newkinds.count.Count.")
    require(count.method == part.name, f"its Count is of the method '{count.method}', not '{part.name}'.")
    require(count.known == KNOWN, f"{KNOWN} classes have labels, and its Count says {count.known}.")
    possible = KNOWN <= count.answer <= len(features)
    require(possible, f"its answer is {count.answer}, of {KNOWN} known classes and {len(features)} images.")
    tried = [k for k, _ in count.curve]
    require(count.answer in tried, f"the answer {count.answer} is not on its curve, which has {tried[:5]} …")
    require(len(set(tried)) == len(tried), "its curve has some numbers twice.")
    require(bool(np.isfinite([score for _, score in count.curve]).all()), "scores on its curve are not finite.")
    same = all(np.array_equal(now, then) for now, then in zip((features, y), before, strict=True))
    require(same, "it changes the features or the labels that it is given.")
    count_text(count)


@contract("counter")
def tensors_and_arrays_give_the_same(part: AskedPart) -> None:
    """Arrays and tensors give the same answer, and so does a second time."""
    features, y = groups(noise=0.3)
    first = COUNTERS[part.name](features, y).answer
    require(first == COUNTERS[part.name](features, y).answer, "a second time the answer is another.")
    of_tensors = COUNTERS[part.name](torch.from_numpy(features), torch.from_numpy(y)).answer
    require(first == of_tensors, f"of arrays the answer is {first}, of tensors {of_tensors}.")


@contract("counter")
def what_cannot_be_counted_is_refused(part: AskedPart) -> None:
    """Without labels, or with one class alone, it answers or says in a sentence why not."""
    features, y = groups()
    for labels in (np.full_like(y, -1), np.where(y == 0, 0, -1)):
        try:
            COUNTERS[part.name](features, labels)
        except NewkindsError:
            continue


@contract("counter")
def separated_groups_are_counted(part: AskedPart) -> str | None:
    """Eight groups that lie far apart are counted as eight."""
    answer = COUNTERS[part.name](*groups(noise=0.05)).answer
    return None if answer == CLASSES else f"it counts {answer}"
