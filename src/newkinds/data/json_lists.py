"""Lists of images and boxes that other programs write as JSON: what they have in common."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import NewkindsError, Skipped
from ..files import exists
from .folder import LARGEST_LIST, require_file, table_below
from .fragments import Box, Part, box_of
from .table import Table

MEGADETECTOR, COCO = "megadetector", "coco"
BESIDE = "images"  # a folder beside a list, where many programs put the files


def read_json(file: Path) -> Any:
    """What a JSON file holds; what is none is an error."""
    require_file(file, LARGEST_LIST)
    try:
        return json.loads(file.read_bytes())
    except RecursionError:
        raise NewkindsError(f"{file} is nested too deeply to be a list of images.") from None
    except OSError as error:
        raise NewkindsError(f"cannot read {file}: {error.strerror}.") from None
    except ValueError as error:
        raise NewkindsError(f"{file} is not JSON: {' '.join(str(error).split())[:160]}.") from None


def kind_of_list(file: Path) -> str:
    """The name of the data set that reads a JSON file, by what is in it."""
    content = read_json(file)
    if isinstance(content, dict) and isinstance(content.get("images"), list):
        if isinstance(content.get("annotations"), list):
            return COCO
        if "detection_categories" in content or any("detections" in entry for entry in dicts_of(content["images"])):
            return MEGADETECTOR
    if isinstance(content, list) and any("detections" in entry for entry in dicts_of(content)):
        return MEGADETECTOR
    raise NewkindsError(
        f"{file} is neither COCO (images and annotations) nor what MegaDetector writes (images with detections): name "
        "a folder, or a CSV file with the columns path, label and box."
    )


def root_of_list(file: str | Path, root: str | Path | None) -> Path:
    """Where the paths of a list begin: in its own folder, unless somebody says otherwise."""
    return Path(file).parent if root is None else Path(root)


def dicts_of(entries: Any) -> list[dict[str, Any]]:
    """The entries of a list that are objects; none of what is no list."""
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def number_in(value: Any) -> float:
    """A number, or NaN for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def four_numbers(value: Any) -> tuple[float, float, float, float]:
    """Of a box; `ValueError` if these are none."""
    if not isinstance(value, list) or len(value) != 4:
        raise ValueError("its box has not four numbers")
    x, y, width, height = map(number_in, value)
    return x, y, width, height


def text_in(value: Any) -> str:
    """A text, or "" for what is none."""
    return value if isinstance(value, str) else ""


class ListedItems:
    """The images and boxes of a list on their way into a table: each once; what cannot be used, with the reason."""

    def __init__(self, root: Path, files: Sequence[str]) -> None:
        """`files`: all that the list names."""
        self.root = root
        self.names: list[str] = []
        self.labels: list[str | None] = []
        self.groups: list[str | None] = []
        self.skipped: list[Skipped] = []
        self._seen: set[str] = set()
        some = [name for name in files if name][:20]
        self._beside = not any(exists(root / name) for name in some) and any(exists(root / BESIDE / n) for n in some)
        self._windows = any("\\" in name for name in some) and not any(exists(root / name) for name in some)

    def file_of(self, name: str) -> str:
        """The path of a file below `root`, as which the list names it."""
        name = name.replace("\\", "/") if self._windows else name
        return f"{BESIDE}/{name}" if self._beside else name

    def skip(self, name: str, reason: str) -> None:
        self.skipped.append(Skipped(name or "(no name)", reason))

    def add(
        self, file: str, box: Box | None, label: str | None, group: str | None = None, time: float | None = None
    ) -> None:
        """An image, or a box in one."""
        name = f"{file}{Part(time, box)}"
        if name in self._seen:
            self.skip(name, "it is in the list twice")
            return
        self._seen.add(name)
        self.names.append(name)
        self.labels.append(label)
        self.groups.append(group)

    def add_box(
        self,
        file: str,
        numbers: Sequence[float],
        label: str | None,
        group: str | None = None,
        time: float | None = None,
    ) -> None:
        """A box x, y, width, height in pixels, if it is one."""
        try:
            self.add(file, box_of(*numbers), label, group, time)
        except ValueError as error:
            self.skip(file, str(error))

    def table(self, listed_in: Path) -> Table:
        if not self.names:
            why = f" ({self.skipped[0].path}: {self.skipped[0].reason})" if self.skipped else ""
            raise NewkindsError(f"{listed_in} lists no image that can be used{why}.")
        groups = self.groups if any(self.groups) else None
        return table_below(self.root, self.names, self.labels, skipped=self.skipped, groups=groups)
