"""What every export of a model needs: the model as one module, real images and what torch says about them, and the
files that lie beside the weights."""

import importlib.resources
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data import images as reading
from ...data import load_table
from ...data.batch import Pixels
from ...data.folder import files_of, table_below
from ...data.images import BadImage
from ...data.table import Table
from ...errors import NewkindsError, reason_of
from ...files import checksum, json_text, write_whole
from ...runs.directory import CHECKSUMS
from ..card import run_card
from ..categories import Discovery
from ..edits import JUNK, JUNK_NAME
from ..finished import LoadedRun, load, read_features
from ..placing import Placer
from .graph import Answer, Classifier

COMPARED = 100  # images on which an export is compared with the run itself, at most
AT_ONCE = (1, 7, 32)  # images in the batches by which they are compared, in turn: any number must do
TOLERANCE = 1e-4  # of probabilities


@dataclass(frozen=True)
class ModelExport:
    """A run that is going to be exported."""

    discovery: Discovery
    loaded: LoadedRun
    classifier: Classifier
    labels: list[dict[str, object]]  # one for each column of the probabilities
    images: Tensor  # (n, 3, H, W) between 0 and 1: some of the run's own
    expected: Answer  # what the run says about them

    @property
    def size(self) -> int:
        return self.loaded.model.encoder.backbone.preprocessing.size

    def write_beside(self, target: Path, script: str, needs: str) -> None:
        """The labels, how images are prepared, the script with what it reads images by, checksums, and the card."""
        preprocessing = self.loaded.model.encoder.backbone.preprocessing
        how = {
            "size": preprocessing.size, "shorter": int(preprocessing.size / preprocessing.crop_ratio),
            "interpolation": "bicubic", "crop": "centre", "mean": preprocessing.mean, "std": preprocessing.std,
            "note": "The model expects RGB between 0 and 1; mean and deviation are applied inside it.",
        }  # fmt: skip
        for name, content in {"labels.json": self.labels, "preprocessing.json": how}.items():
            write_whole(target / name, json_text(content, target / name, indent=1, ensure_ascii=False) + "\n")
        write_whole(target / "images.py", inspect.getsource(reading))
        for name in ("checked.py", "prepare.py", script):
            text = (importlib.resources.files(__package__) / "scripts" / name).read_text(encoding="utf-8")
            write_whole(target / name, text)
        usage = f"pip install {needs}\npython {script} image.jpg more-images/*.jpg"
        used = sorted(file for file in target.iterdir() if file.is_file())
        write_whole(target / CHECKSUMS, "".join(f"{checksum(file)}  {file.name}\n" for file in used))
        write_whole(target / "README.md", run_card(self.loaded.run, self.loaded.described(), self.discovery, usage))

    def compare(self, answer: Callable[[Tensor], Sequence[Tensor | NDArray]]) -> str:
        """Refuse an export that does not say the same as the run about real images; a sentence about it, else."""
        parts: list[Answer] = []
        start = 0
        while start < len(self.images):
            some = self.images[start : start + AT_ONCE[min(len(parts), len(AT_ONCE) - 1)]]
            parts.append(Answer(*(torch.as_tensor(output) for output in answer(some))))
            start += len(some)
        found = Answer(*map(torch.cat, zip(*parts, strict=True)))
        other = int((found.category != self.expected.category).sum())
        largest = max(
            float((getattr(found, name) - getattr(self.expected, name)).abs().max())
            for name in ("probabilities", "confidence")
        )
        about = f"on {len(self.images)} images of the run" if len(self.images) > 1 else "on one image of the run"
        if other or not largest <= TOLERANCE:  # NaN is no agreement
            raise NewkindsError(
                f"the exported model does not say the same as the run: {about} {other} categories differ, and "
                f"probabilities by up to {largest:.1g}. Nothing was exported."
            )
        return f"compared {about}: same categories, probabilities differ by {largest:.0e} at most"


def prepare_export(discovery: Discovery, images: Sequence[str | Path] = ()) -> ModelExport:
    """Load a run, and let it say what it thinks about some of its own images, or of others that are named."""
    loaded = load(discovery.run, device="cpu")
    placer = Placer(loaded.model, discovery, partial(read_features, loaded.run))
    classifier = Classifier(placer)
    names = {**placer.lens.names, JUNK: JUNK_NAME}
    labels: list[dict[str, object]] = [
        {"id": number, "name": names[number], "is_new": placer.lens.is_new.get(number, False)}
        for number in classifier.edited.ids
    ]
    views = _views(loaded, _table(loaded, images))
    expected = _expected(placer, classifier, views)
    return ModelExport(discovery, loaded, classifier, labels, views.float() / 255, expected)


@torch.inference_mode()
def _expected(placer: Placer, classifier: Classifier, views: Tensor) -> Answer:
    """What `newkinds predict` says about views (n, 3, H, W) uint8; probabilities, which it does not, by the module."""
    model = placer.model
    features = torch.cat([model.encoder(Pixels(some)).feature.float() for some in views.split(32)])
    shown, found = placer.place(features)
    place = {number: column for column, number in enumerate(classifier.edited.ids)}
    category = torch.tensor([place[number] for number in shown.tolist()])
    shares = torch.cat([classifier(some.float() / 255).probabilities for some in views.split(32)])
    unlike = found.unlike
    assert unlike is not None, "a model of a run is calibrated"
    return Answer(category, found.confidence, unlike, shares, model.compare(features))


def _table(loaded: LoadedRun, images: Sequence[str | Path]) -> Table:
    if images:
        files = files_of(images, [])
        return table_below(Path(), list(map(str, files)), [None] * len(files))
    try:
        return load_table(loaded.config.data)
    except NewkindsError as error:
        raise NewkindsError(
            f"the images of the run are not there, and a model is exported only after it was compared with the run on "
            f"real images: name some others by --compare-on. ({reason_of(error)})"
        ) from None


def _views(loaded: LoadedRun, table: Table) -> Tensor:
    """(n, 3, H, W) uint8: up to COMPARED images, evenly from all that can be read."""
    if loaded.config.backbone["width"] is not None:
        raise NewkindsError(f"{loaded.run.folder} is of vectors: models are exported for images only.")
    preprocessing, views = loaded.model.encoder.backbone.preprocessing, []
    order = np.random.default_rng(0).permutation(len(table))
    for row in order.tolist():
        try:
            views.append(preprocessing.centre_view(preprocessing.resize(table.open(row))))
        except BadImage:
            continue
        if len(views) == COMPARED:
            break
    if not views:
        raise NewkindsError(
            "none of the run's images can be read, and a model is exported only after it was compared with the run on "
            "real images: name some others by --compare-on."
        )
    return torch.stack(views)
