"""The run's model, for what only it can do: see an image that the run does not have, and show primitive fields.

It is loaded when it is first needed, for importing torch takes seconds."""

import io
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...data.images import open_image
from ...data.table import Table
from ...errors import NewkindsError, reason_of
from ...runs.directory import RunDirectory

if TYPE_CHECKING:
    from ..finished import LoadedRun, Prediction

WITHOUT_FIELDS = ("", "none", "patches", "adapter", "grid")  # organizers that say nothing about places
FIELDS_KEPT = 32  # images whose fields are kept in memory

State = Literal["asleep", "loading", "ready", "failed"]


class Sight:
    """Loads the model of a run in the background, and uses it for one image at a time."""

    def __init__(self, run: RunDirectory) -> None:
        self.state: State = "asleep"
        self.says = ""
        self.has_model = run.model_file.is_file()
        self.has_fields = self.has_model and _organizer(run) not in WITHOUT_FIELDS
        self._run = run
        self._loaded: LoadedRun | None = None
        self._lock = threading.Lock()
        self._fields: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def _model(self) -> "LoadedRun":
        """The model; whoever comes first loads it, the others wait."""
        if self._loaded is None:
            self.state, self.says = "loading", "loading the model"
            try:
                from ..finished import load

                self._loaded = load(self._run.folder)
            except Exception as error:
                self.state, self.says = "failed", f"the model cannot be loaded: {reason_of(error)}"
                raise NewkindsError(self.says) from None
            self.state, self.says = "ready", ""
        return self._loaded

    def look(self, image: Path) -> "tuple[Prediction, NDArray[np.float32]]":
        """The prediction for an image file, and its unit row (P,) in the run's embedding."""
        opened = open_image(image)
        with self._lock:
            return self._model().look(opened)

    def fields(self, row: int, opened: Image.Image) -> dict[str, Any]:
        """The primitive fields of the run's own image: what the colours mean, the key, and pictures as PNG files."""
        with self._lock:
            if row not in self._fields:
                self._fields[row] = _drawn(self._model(), opened)
                while len(self._fields) > FIELDS_KEPT:
                    self._fields.popitem(last=False)
            return self._fields[row]


def _drawn(loaded: "LoadedRun", opened: Image.Image) -> dict[str, Any]:
    from ...training.embedding import fields_of
    from ..figures.field_maps import field_overlays

    table = Table(["image"], [None], lambda _: opened)
    fields = fields_of(loaded.model.encoder, table, [0], loaded.model.device)
    if fields is None:
        raise NewkindsError("this model has no primitive fields.")
    drawn = field_overlays(list(fields.views), list(fields.shares), fields.grid)
    overlay = drawn.overlays[0]
    key = [{"index": p.index, "colour": p.colour, "won": round(p.won, 4)} for p in drawn.winning]
    titles = ["image", "winners", *(f"primitive {primitive.index}" for primitive in drawn.mapped)]
    pictures = [_png(picture) for picture in (overlay.image, overlay.winners, *overlay.maps)]
    return {"says": drawn.describe(), "key": key, "titles": titles, "pictures": pictures}


def _png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def _organizer(run: RunDirectory) -> str:
    try:
        section = run.settings().get("organizer")
    except NewkindsError:
        return ""
    return str(section.get("name", "")) if isinstance(section, dict) else ""
