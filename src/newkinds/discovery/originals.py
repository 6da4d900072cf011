"""The images that a run assigned, where they are now. Without torch, and without looking for other images."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath

import numpy as np
from PIL import Image

from ..console import keep_quiet
from ..data import load_table, root_of
from ..data.folder import table_below
from ..data.images import BadImage
from ..data.more import SETTING as MORE
from ..data.more import is_named_by
from ..data.table import Table
from ..data.vectors import NAME as READY_MADE
from ..data.vectors import no_picture
from ..errors import NewkindsError, reason_of
from ..runs.directory import RunDirectory
from ..runs.seen_images import replaced_rows
from .kinds import Member

REPLACED = "another image is there now: it was replaced since the run began"
WHERE = "If the images have moved, say where they are now by --images FOLDER."


def originals(run: RunDirectory, members: Sequence[Member], folder: str | Path | None = None) -> Table:
    """A table of just these images; for one that is gone, `open` (or `file`) raises `BadImage`.

    `folder`: where the images are now, if they have moved; of a published data set the folder that holds its copy.

    >>> table = originals(RunDirectory("runs/photos"), found.members)
    >>> table.open(0)                     # the image of found.members[0]
    """
    paths, labels = [member.path for member in members], [member.given_label for member in members]
    if folder is not None and not Path(folder).is_dir():
        raise NewkindsError(f"there is no folder {folder}: say where the images are now by --images FOLDER.")
    data = run.settings().get("data")
    if not isinstance(data, dict) or "name" not in data:
        raise NewkindsError(f"{run.path('config.yaml')} does not say which images the run is of.")
    own_root = root_of(data)
    if own_root is not None:
        root = own_root if folder is None else Path(folder)
        if not root.is_dir():
            raise NewkindsError(f"the images of {run.folder} are not in {root} any more. {WHERE}")
        if data["name"] == "folder":  # no name in a folder leads out of it; a list may name files anywhere
            more = data.get(MORE) or []
            for path in paths:
                leads_out = PurePath(path).is_absolute() or ".." in PurePath(path).parts
                if leads_out and not is_named_by(more, path):
                    raise NewkindsError(f"{run.path('assignments.csv')} names {path}, which is not below {root}.")
        return table_below(root, paths, labels)
    if data["name"] == READY_MADE:
        return Table(paths, labels, no_picture, vectors=np.empty((len(paths), 0)))  # they are not looked at
    if folder is not None and "root" not in data:
        raise NewkindsError(f"the images of {data['name']} are in no folder, so --images does not apply.")
    try:
        with keep_quiet():  # what there is to say about the data was said when the run began
            table = load_table(data if folder is None else {**data, "root": str(folder)})
    except NewkindsError as error:
        raise NewkindsError(f"{reason_of(error)}\n{WHERE}" if "root" in data else reason_of(error)) from None
    row_of = {path: row for row, path in enumerate(table.paths)}

    def row(place: int) -> int:
        if paths[place] not in row_of:
            raise BadImage("the data set has no such image now")
        return row_of[paths[place]]

    file = table.file
    return Table(
        paths, labels, lambda place: table.open(row(place)), file=None if file is None else lambda p: file(row(p))
    )


def without_replaced(run: RunDirectory, table: Table) -> tuple[Table, list[str]]:
    """The run's images, where those that were replaced by others since it began cannot be opened; and their paths."""
    replaced = set(replaced_rows(run, table))
    if not replaced:
        return table, []

    def open_or_refuse(row: int) -> Image.Image:
        if row in replaced:
            raise BadImage(REPLACED)
        return table.open(row)

    return replace(table, open=open_or_refuse), [table.paths[row] for row in sorted(replaced)]
