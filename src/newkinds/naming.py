"""When a category may have the name of a known class."""

FEWEST_LABELS = 2  # of the class, that must lie in the category; of a class with a single label, that one
LEAST_SHARE = 0.25  # of all labelled images of the class


def bears_name(of_class: int, labelled: int, labels: int) -> bool:
    """Whether the labelled images in a category say that it is a known class.

    `of_class` of the `labelled` images that the model puts there are of the class, which has `labels` in all. They
    must be more than half of the labelled images there, at least two, and at least a quarter of those of the class.

    >>> bears_name(of_class=3, labelled=4, labels=9), bears_name(of_class=1, labelled=1, labels=2)
    (True, False)
    """
    enough = of_class >= max(1, min(FEWEST_LABELS, labels)) and of_class >= LEAST_SHARE * labels
    return enough and 2 * of_class > labelled
