"""What every data set promises."""

import pickle
from dataclasses import replace

from PIL import Image

from ..data import DATASETS
from ..data.images import BadImage
from ..data.table import Table, require_discoverable, require_labels
from .base import AskedPart, NotAsked, contract, require

OPENED = 8  # images, spread over all


def load(part: AskedPart) -> Table:
    return DATASETS[part.name](**part.settings)


@contract("data set")
def a_table_with_labels_and_without(part: AskedPart) -> None:
    """It is a `Table` with images that have a label and images that have none, each named once."""
    table = load(part)
    require(isinstance(table, Table), f"it returns a {type(table).__name__}, not a newkinds.data.Table.")
    for name in ("labels", "truth", "groups"):
        column = getattr(table, name)
        require(column is None or len(column) == len(table), f"{len(table)} paths have {len(column or ())} {name}.")
    twice = sorted(path for path in set(table.paths) if table.paths.count(path) > 1) if len(table) < 10_000 else []
    require(len(set(table.paths)) == len(table), f"some images have the same path: {', '.join(twice[:2])}.")
    require_discoverable(table)
    require_labels(table)
    unknown = [label for label in set(table.labels) - {None} if label not in table.known]
    require(not unknown, f"the label '{unknown[:1]}' is not among the known classes (`known_first`).")


@contract("data set")
def truth_agrees_with_labels(part: AskedPart) -> str | None:
    """True classes, which training never reads, agree with the labels."""
    table = load(part)
    if table.truth is None:
        return "there are no true classes, so that newkinds eval needs --truth"
    pairs = zip(table.paths, table.labels, table.truth, strict=True)
    wrong = [path for path, label, true in pairs if label is not None and true not in (None, label)]
    require(not wrong, f"the label of {wrong[:1]} is not its true class.")
    classes = {true for true in table.truth if true is not None} | set(table.known)
    few = table.categories is not None and table.categories < len(classes)
    require(not few, f"there are {len(classes)} classes, and `categories` says {table.categories}.")
    return None


@contract("data set")
def the_same_twice(part: AskedPart) -> None:
    """Read twice, it has the same images with the same labels, in the same order."""
    require(load(part).fingerprint() == load(part).fingerprint(), "a second time images or labels are others.")


@contract("data set")
def images_open(part: AskedPart) -> None:
    """Images open as RGB, also in the processes that read them."""
    require_open(load(part))


@contract("data set")
def test_images_are_judged(part: AskedPart) -> None:
    """Its test images, if it has some, have true classes and no labels, and are not among the others."""
    table = load(part)
    if table.test is None:
        raise NotAsked("it has none")
    test = table.test()
    require(test.truth is not None and None not in test.truth, "some test images have no true class.")
    require(all(label is None for label in test.labels), "test images have labels, which nothing may read.")
    require(test.known == table.known, f"the known classes of test images are {test.known}, not {table.known}.")
    both = set(test.files() or test.paths) & {*table.files(), *table.paths}
    require(not both, f"{sorted(map(str, both))[0] if both else ''} is among the training images too.")
    require_open(test)


def require_open(table: Table) -> None:
    """Open some images, as a process that reads images gets the table."""
    try:
        sent = pickle.loads(pickle.dumps(replace(table, vectors=None)))  # our own bytes, just made
    except Exception as error:
        require(
            False,
            f"its table cannot be sent to the processes that read images ({error}): `open` and `test` are functions of "
            "the module, or functools.partial of one, no lambdas and no functions in functions.",
        )
    if table.vectors is not None:
        return
    for row in range(0, len(table), max(len(table) // OPENED, 1)):
        try:
            image = sent.open(row)
        except BadImage as error:
            require(False, f"{table.paths[row]} cannot be opened: {error}")
        require(isinstance(image, Image.Image), f"{table.paths[row]} opens as {type(image).__name__}, no PIL image.")
        require(image.mode == "RGB", f"{table.paths[row]} opens in the mode {image.mode}, not RGB.")
