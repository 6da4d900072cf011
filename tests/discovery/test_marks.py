"""Which categories deserve a look."""

from collections import Counter

import numpy as np

from newkinds.discovery.edits import JUNK
from newkinds.discovery.kinds import Category, Member
from newkinds.discovery.marks import disagree, marks_of, unusually_high


def some_categories(sizes: list[int], confidences: list[float]) -> list[Category]:
    pairs = enumerate(zip(sizes, confidences, strict=True))
    return [Category(i, f"c{i}", False, size, confidence, []) for i, (size, confidence) in pairs]


def members_of(number: int, **labels: int) -> list[Member]:
    """Labelled images that the model puts into a category."""
    return [
        Member(f"{label}{i}", label, f"c{number}", False, 0.9, category_id=number)
        for label, n in labels.items()
        for i in range(n)
    ]


def test_small_by_number_and_by_share() -> None:
    marks = marks_of(some_categories([4, 5, 100, 100, 19, 20, 0], [0.9] * 7), [], [], np.full(7, 0.3))
    assert [name for name, found in marks.items() if "small" in found] == ["c0"]  # the median is 19.5
    marks = marks_of(some_categories([19, 20, 100, 100, 100], [0.9] * 5), [], [], np.full(5, 0.3))
    assert [name for name, found in marks.items() if "small" in found] == ["c0"]


def test_mixed_by_labels_and_by_spread() -> None:
    members = [*members_of(0, cat=7, dog=3), *members_of(1, cat=9, dog=1), *members_of(2, cat=1, dog=1)]
    spread = np.array([0.3, 0.31, 0.29, 0.3, 0.9, 0.3])
    labels = [{"cat": 0, "dog": 1}.get(member.given_label or "") for member in members]
    marks = marks_of(some_categories([50] * 6, [0.9] * 6), members, labels, spread)
    assert [name for name, found in marks.items() if "mixed" in found] == ["c0", "c4"]
    # labelled images stay in their class, and tell against the category where the model would put them
    kept = [
        member._replace(category_id=label, model_category_id=member.category_id, model_confidence=0.9)
        for member, label in zip(members, labels, strict=True)
        if label is not None
    ]
    assert marks_of(some_categories([50] * 6, [0.9] * 6), kept, labels, spread) == marks
    decided = [member._replace(status="accepted") for member in kept]
    assert "mixed" not in marks_of(some_categories([50] * 6, [0.9] * 6), decided, labels, spread)["c0"]
    merged = [0] * len(members)  # both classes are one category now
    assert marks_of(some_categories([50] * 6, [0.9] * 6), members, merged, spread)["c0"] == []


def test_junk_is_in_no_category() -> None:
    members = [*members_of(JUNK, cat=5, dog=5), *members_of(7, cat=9)]
    categories = [Category(7, "c7", False, 9, 0.9, []), Category(12, "c12", True, 9, 0.9, [])]  # ids have gaps
    assert marks_of(categories, members, [0] * 14 + [1] * 5, np.array([0.3, 0.4])) == {"c7": ["mixed"], "c12": []}


def test_unsure_is_far_below_the_others() -> None:
    marks = marks_of(some_categories([50] * 6, [0.9, 0.88, 0.91, 0.9, 0.5, 0.89]), [], [], np.full(6, 0.3))
    assert {name: found for name, found in marks.items() if found} == {"c4": ["unsure"]}


def test_nothing_is_unsure_at_nearly_full_confidence() -> None:
    marks = marks_of(some_categories([50] * 6, [1.0, 0.999, 1.0, 1.0, 0.99, 1.0]), [], [], np.full(6, 0.3))
    assert set(map(tuple, marks.values())) == {()}


def test_equal_categories_and_no_categories_have_no_marks() -> None:
    assert set(map(tuple, marks_of(some_categories([50] * 9, [0.9] * 9), [], [], np.full(9, 0.3)).values())) == {()}
    assert marks_of([], [], [], np.empty(0)) == {}


def test_the_fence_is_tukeys() -> None:
    values = np.random.default_rng(0).standard_t(3, size=200)
    low, high = np.percentile(values, 25), np.percentile(values, 75)
    assert unusually_high(values).tolist() == [bool(value > high + 1.5 * (high - low) + 1e-6) for value in values]
    assert unusually_high(values).any()
    assert unusually_high(np.array([np.nan, 1, 1, 1, 1, 50])).tolist() == [False] * 5 + [True]
    assert not unusually_high(np.array([0, 0, 9.0])).any(), "too few to say what is usual"


def test_labels_disagree_from_a_fifth_on() -> None:
    assert not disagree(Counter())
    assert not disagree(Counter({0: 4, 1: 1}))
    assert disagree(Counter({0: 3, 1: 1}))
