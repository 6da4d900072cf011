"""Images and their labels: every source becomes one Table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..console import warn
from ..errors import NewkindsError, nearest
from . import coco, csv_list, folder, megadetector, published, vectors  # noqa: F401  (registers the data sets)
from .corrections import SETTINGS as CORRECTED
from .corrections import apply_corrections, read_corrections
from .creatures import dataset  # noqa: F401
from .json_lists import COCO, MEGADETECTOR, kind_of_list, root_of_list
from .more import SETTING, table_with_more
from .table import DATASETS, Table

__all__ = ["DATASETS", "Table", "load_table", "root_of", "source_of"]

LISTS = ("csv", COCO, MEGADETECTOR)  # data sets whose images a file lists
OF_FILES = ("folder", *LISTS, "vectors")  # data sets that need to be told which files


def source_of(data: str | Path) -> dict[str, Any]:
    """What the user named, as the settings section `data`: a folder, a CSV file, JSON of MegaDetector or COCO, an
    .npy file, or a data set of ours.

    Paths become absolute, so that a run finds its images from anywhere. A data set's name means the data set,
    even if a folder has the same name: write ./cub for the folder.

    >>> source_of("creatures")
    {'name': 'creatures'}
    """
    if not str(data):
        raise NewkindsError("no folder, CSV file, .npy file or data set is named.")
    path = Path(data)
    own = [name for name in DATASETS if name not in OF_FILES]
    if isinstance(data, str) and data in own:
        if path.exists():
            warn(f"'{data}' is the data set of that name; the folder or file {path} that is here is ./{data}.")
        return {"name": data}
    if path.is_dir():
        return {"name": "folder", "path": str(path.resolve())}
    if path.is_file():
        if path.suffix.lower() in (".csv", ".tsv", ".txt"):
            return {"name": "csv", "path": str(path.resolve())}
        if path.suffix.lower() == vectors.ENDING:
            return {"name": vectors.NAME, "path": str(path.resolve())}
        if path.suffix.lower() == ".json":
            return {"name": kind_of_list(path), "path": str(path.resolve())}
        raise NewkindsError(
            f"{path} is neither a folder nor a CSV or JSON file, nor are these vectors in an .npy file."
        )
    raise NewkindsError(
        f"there is no folder, CSV file or data set '{data}'.{nearest(str(data), own)} Data sets: {', '.join(own)}."
    )


def load_table(settings: Mapping[str, Any]) -> Table:
    """The table of a resolved `data` section; with images that came later from elsewhere, and with the labels that
    people gave, if it names these."""
    options = {name: value for name, value in settings.items() if name not in ("name", SETTING, *CORRECTED)}
    table = table_with_more(DATASETS[settings["name"]](**options), settings.get(SETTING) or ())
    file = settings.get("corrections")
    return table if file is None else apply_corrections(table, read_corrections(Path(file)))


def root_of(data: Mapping[str, Any]) -> Path | None:
    """The folder in which the paths of a `data` section begin; None if its images are no files of the user's."""
    if data["name"] == "folder":
        return Path(str(data.get("path")))
    return root_of_list(str(data.get("path")), data.get("root")) if data["name"] in LISTS else None
