"""CUB-200-2011: 200 kinds of birds (Wah et al., 2011)."""

import re
from pathlib import Path

from ...errors import NewkindsError
from .base import Listing, Part, index_lines, listed_files

NUMBER = re.compile("[0-9]{1,9}")  # str.isdigit knows signs that int does not, such as ²


def read_cub(folder: Path, part: Part) -> Listing:
    """Images in the order of their numbers; class = number in classes.txt - 1."""
    class_names = _by_number(folder / "classes.txt")
    class_of = _by_number(folder / "image_class_labels.txt")
    is_training = _by_number(folder / "train_test_split.txt")
    rows = []
    for number, (line, name) in _by_number(folder / "images.txt").items():
        for other, file in ((class_of, "image_class_labels.txt"), (is_training, "train_test_split.txt")):
            if number not in other:
                raise NewkindsError(
                    f"{folder / file} does not list image {number} (images.txt line {line}): unpack it again."
                )
        split_line, training = is_training[number]
        if training not in ("0", "1"):
            raise NewkindsError(f"{folder / 'train_test_split.txt'} line {split_line} says {training!r}, not 0 or 1.")
        if (training == "1") != (part == "train"):
            continue
        label_line, class_number = class_of[number]
        where = f"{folder / 'image_class_labels.txt'} line {label_line}"
        if not NUMBER.fullmatch(class_number) or int(class_number) not in class_names:
            raise NewkindsError(f"{where} gives the class {class_number!r}, which classes.txt does not have.")
        _, label = class_names[int(class_number)]
        if name.partition("/")[0] != label:
            raise NewkindsError(f"{where} gives the class {label}, but images.txt line {line} has {name}.")
        rows.append((f"images/{name}", label, f"images.txt line {line}"))
    return Listing(listed_files(folder, rows), [name for _, name in class_names.values()])


def _by_number(file: Path) -> dict[int, tuple[int, str]]:
    """`17 text` → {17: (line, "text")}, in ascending order of the numbers."""
    entries: dict[int, tuple[int, str]] = {}
    for line, number, text in index_lines(file):
        if not NUMBER.fullmatch(number) or not text:
            raise NewkindsError(f"{file} line {line} is not a number and a text: unpack the data set again.")
        if int(number) in entries:
            raise NewkindsError(f"{file} line {line} repeats the number {number} of line {entries[int(number)][0]}.")
        entries[int(number)] = (line, text)
    return dict(sorted(entries.items()))
