"""Using a finished run: on the images it was trained on, and on images it has never seen."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from ..console import warn
from ..data import load_table, source_of
from ..data.bursts import group_photos
from ..data.folder import files_of, mention_ignored, table_below
from ..data.frames import with_frames
from ..data.images import BadImage
from ..data.table import Table, readable
from ..data.vectors import table_of_vectors
from ..errors import NewkindsError, Skipped
from ..methods.base import Assignment
from ..runs.directory import RunDirectory
from ..runs.protocol import describe_protocol, require_same_images
from ..runs.records import Timing
from ..runs.run import Run
from ..runs.seen_images import copies_left_out, earlier_images
from ..training.cache import TokenCache
from ..training.device import choose_device
from ..training.embedding import Embedded, embed, fields_of
from ..training.model import Model, load_model
from .assignment_tables import categories_of_model, read_skipped
from .categories import Discovery
from .decisions import Decisions
from .described import Described, TypicalFields, write_described
from .edits import JUNK, NO_CATEGORY, POOL
from .kinds import Member, category_of, stay_waiting
from .placing import Placer
from .split import EMBEDDING

FEATURES = "features.safetensors"  # (n, D) of the images of a run, in the order of its table
FIELD_IMAGES = 6  # images whose primitive fields are drawn on the page
LIST_ENDINGS = (".csv", ".tsv", ".json")  # of files that name images, and are none


@dataclass(frozen=True)
class Prediction:
    """The category of one image that may never have been seen before."""

    path: str
    category: str
    is_new: bool
    confidence: float  # that it is right
    unlike: float = 0.0  # distance to its category; above 1, it is unlike every category
    category_id: int = JUNK  # stays the same if the category is renamed
    decided: bool = False  # a person has said so about this very image

    def as_member(self) -> Member:
        """The image as if it were one of the run's."""
        status = "accepted" if self.decided else ""
        return Member(
            self.path, None, self.category, self.is_new, self.confidence, self.unlike, self.category_id, status
        )


@dataclass(frozen=True)
class Predictions:
    """What a run says about images, and what a page of them is made of."""

    predictions: list[Prediction]
    skipped: list[Skipped]  # images that could not be read
    table: Table  # opens the images, one for each prediction
    embedding: np.ndarray  # (n, P) their unit rows, in the space in which the run's images are compared


def full_names(table: Table) -> list[str]:
    """The names of the images of a list from here, not from its own folder."""
    assert table.file is not None
    return [f"{table.file(row)}{table.part_of(row)}" for row in range(len(table))]


class LoadedRun:
    """A finished run, ready to be used on other images.

    >>> model = newkinds.load("runs/photos")
    >>> model.predict(["holiday.jpg"])[0].category
    """

    def __init__(self, run: Run, model: Model, categories: Sequence[tuple[int, str]] | None = None) -> None:
        """`categories`: id and name of those that the model knows; else as the run has them."""
        self.run = run
        self.config = run.config()
        self.model = model
        self.categories = list(categories or categories_of_model(run, model.known, model.categories))

    def predict(
        self, images: str | Path | Iterable[str | Path], group_by_time: str | float | None = None
    ) -> list[Prediction]:
        """A category for each readable image; files and folders may be mixed. Unreadable ones are warned of.

        `group_by_time`: photos that a camera took within so short a time, such as "10s", get one category.
        """
        return self.answer(images, group_by_time).predictions

    def predict_or_skip(
        self, images: str | Path | Iterable[str | Path], group_by_time: str | float | None = None
    ) -> tuple[list[Prediction], list[Skipped]]:
        """Predictions, and the images that could not be read with the reason."""
        answer = self.answer(images, group_by_time)
        return answer.predictions, answer.skipped

    def answer(
        self, images: str | Path | Iterable[str | Path], group_by_time: str | float | None = None
    ) -> Predictions:
        """All that is said about images; those that cannot be read are warned of."""
        table = self._table_of([images] if isinstance(images, (str, Path)) else list(images))
        table = group_photos(table, group_by_time)
        embedded = embed(self.model.encoder, table, self.model.device)
        all_skipped = [*table.skipped, *embedded.skipped]
        for skipped in all_skipped:
            warn(f"{skipped.path} skipped: {skipped.reason}")
        predictions = self._predictions(table, embedded)
        return Predictions(predictions, all_skipped, table.rows(embedded.rows), self.embedding(embedded.features))

    def _table_of(self, named: Sequence[str | Path]) -> Table:
        """Image files and folders; for a run of ready-made vectors, files of these."""
        if (width := self.config.backbone["width"]) is not None:
            return table_of_vectors(named, width)
        others: list[Path] = []
        lists = [entry for entry in named if Path(entry).suffix.lower() in LIST_ENDINGS and Path(entry).is_file()]
        files = files_of([entry for entry in named if entry not in lists], others, videos=True)
        mention_ignored(others)
        names: dict[str, str | None] = dict.fromkeys(map(str, files))  # each once, and its group
        skipped: list[Skipped] = []
        for entry in lists:
            listed = load_table(source_of(entry))
            skipped += listed.skipped
            groups = listed.groups or [None] * len(listed)
            names |= dict(zip(full_names(listed), groups, strict=True))
        grouped = list(names.values()) if any(names.values()) else None
        return with_frames(table_below(Path(), list(names), [None] * len(names), groups=grouped, skipped=skipped))

    def look(self, image: Image.Image) -> tuple[Prediction, np.ndarray]:
        """The prediction for an opened image, and its unit row (P,) where the run's images are compared."""
        table = Table([""], [None], lambda _: image)
        embedded = embed(self.model.encoder, table, self.model.device, workers=0)
        rows = self.embedding(embedded.features)
        return self._predictions(table, embedded)[0], rows[0] / max(float(np.linalg.norm(rows[0])), 1e-12)

    def _predictions(self, table: Table, embedded: Embedded) -> list[Prediction]:
        shown, assignment = self._seen_through_edits(table, embedded)
        confidence, unlike = assignment.confidence.tolist(), unlike_of(assignment)
        return [
            Prediction(table.paths[row], name, is_new, round(p, 4), other, number, decided)
            for row, (number, name, is_new, decided), p, other in zip(
                embedded.rows, shown, confidence, unlike, strict=True
            )
        ]

    def _seen_through_edits(
        self, table: Table, embedded: Embedded
    ) -> tuple[list[tuple[int, str, bool, bool]], Assignment]:
        """Id, name and newness of each image's category as people see it, and whether that is their word on this very
        image, which is the last."""
        if not self.run.is_answered:
            require_unanswered(self.run)
            assignment = self.model.assign(embedded.features)
            known = len(self.model.known)
            return [(*self.categories[c], c >= known, False) for c in assignment.category.tolist()], assignment
        found = Discovery.read(self.run.folder)
        placer = Placer(self.model, found, partial(read_features, self.run))
        placed, assignment = placer.place(embedded.features)
        decided = Decisions(self.run, found.members).about(table, embedded.rows)
        now = [c if said is None else said for c, said in zip(placed.tolist(), decided, strict=True)]
        names, is_new = {**placer.lens.names, **NO_CATEGORY}, placer.lens.is_new
        pairs = zip(now, decided, strict=True)
        return [(c, names[c], is_new.get(c, False), said is not None) for c, said in pairs], assignment

    def embedding(self, features: Tensor) -> np.ndarray:
        """Unit rows (n, P) of features (n, D): the space in which images are compared."""
        with torch.inference_mode():
            return self.model.compare(features.to(self.model.device)).float().cpu().numpy()

    def discover(self, table: Table, cache: TokenCache | None = None, page: bool = True) -> Discovery:
        """Embed and assign the images the run was trained on, and write all it shows."""
        return self.show(table, self.embed(table, cache), page)

    def embed(self, table: Table, cache: TokenCache | None = None) -> Embedded:
        """The features of all images."""
        return embed(self.model.encoder, table, self.model.device, cache=cache)

    def _keep_features(self, embedded: Embedded) -> None:
        if embedded.seconds:
            Timing(embedded.seconds, len(embedded.rows)).write(self.run)
        self.run.write(FEATURES, save({"features": embedded.features}))

    def show(
        self, table: Table, embedded: Embedded, page: bool = True, correct: Callable[[Discovery], None] | None = None,
        waiting: Collection[str] = (),
    ) -> Discovery:  # fmt: skip
        """Assign embedded images, and write features, tables, page and card; the page may be left out.

        `correct`: enters what people have decided before, so that nobody ever sees it undone. `waiting`: images that
        were not placed before, and stay in the pool if they are still unlike every category.
        """
        from .report.build import write_card, write_page  # jinja2 is needed here only

        self._keep_features(embedded)
        alone = self.model.assign(embedded.features, inside=True)
        labels = torch.from_numpy(labels_of_copies(table))[embedded.rows]
        assignment = self.model.keep_labels(alone, embedded.features, labels)
        found = gather(self.run, table, embedded, assignment, self.categories, len(self.model.known), alone, waiting)
        self._keep_embedding(embedded.features)
        self._describe(found, table)
        if correct is not None:
            correct(found)
        found.write()  # last: if there are assignments, there is all that the page is made of
        if page:
            write_page(self.run)
        write_card(self.run)
        return found

    def described(self) -> Described:
        """What the model and its settings say about themselves."""
        return Described(self.model.known, describe_protocol(self.run))

    def _keep_embedding(self, features: Tensor) -> None:
        rows = torch.from_numpy(self.embedding(features)).half()  # to look at, not to compute with
        self.run.write(EMBEDDING, save({"embedding": rows}))

    def _describe(self, found: Discovery, table: Table | None) -> None:
        fields = None if table is None else self._typical_fields(found, table)
        write_described(replace(self.described(), fields=fields), self.run)

    def _typical_fields(self, found: Discovery, table: Table) -> TypicalFields | None:
        """Primitive fields of the most typical images of the largest categories, new ones first."""
        row_of = {path: row for row, path in enumerate(table.paths)}
        largest = sorted(found.found_categories, key=lambda category: (not category.is_new, -category.size))
        paths = [category.exemplars[0] for category in largest if category.exemplars][:FIELD_IMAGES]
        try:
            rows = [row_of[path] for path in paths]
            fields = fields_of(self.model.encoder, table, rows, self.model.device) if rows else None
        except BadImage:  # it has vanished since it was embedded: a page without these pictures is better than none
            return None
        return None if fields is None else TypicalFields(paths, fields.views, fields.shares, fields.grid)


def labels_of_copies(table: Table) -> np.ndarray:
    """(n,) the class of each image, -1 if there is no label: that of an exact copy counts, as it does in `predict`, if
    copies do not contradict each other, and that of its group. Not in a benchmark, where nothing but the split says
    what is labelled."""
    targets = table.targets
    if table.class_list is not None:
        return targets
    if table.groups is not None:
        targets = _agreed_in(table.group_numbers().tolist(), targets)
    return targets if table.contents is None else _agreed_in(table.contents, targets)


def _agreed_in(keys: Sequence[str | int], targets: np.ndarray) -> np.ndarray:
    """Classes (n,; -1: none), where images with the same key have the class that those with one agree on."""
    classes: dict[str | int, set[int]] = {}
    for key, target in zip(keys, targets.tolist(), strict=True):
        if target >= 0:
            classes.setdefault(key, set()).add(target)
    agreed = {key: next(iter(of)) for key, of in classes.items() if len(of) == 1}
    pairs = zip(keys, targets.tolist(), strict=True)
    return np.array([target if target >= 0 else agreed.get(key, -1) for key, target in pairs], dtype=np.int64)


def gather(
    run: Run, table: Table, embedded: Embedded, assignment: Assignment, named: Sequence[tuple[int, str]], known: int,
    alone: Assignment, waiting: Collection[str] = (),
) -> Discovery:  # fmt: skip
    """Members and categories from an assignment of the embedded images; `named`: id and name of each category, of which
    the first `known` are known.

    `alone`: what the model says without labels. Where that differs, it is kept beside the answer.
    """
    category, confidence = assignment.category.tolist(), assignment.confidence.tolist()
    members = [
        Member(table.paths[row], table.labels[row], named[c][1], c >= known, round(p, 4), unlike, named[c][0])
        for row, c, p, unlike in zip(embedded.rows, category, confidence, unlike_of(assignment), strict=True)
    ]
    for place in (alone.category != assignment.category).nonzero()[:, 0].tolist():
        other, sure = named[int(alone.category[place])][0], round(float(alone.confidence[place]), 4)
        members[place] = members[place]._replace(model_category_id=other, model_confidence=sure)
    members = [stay_waiting(m) if m.path in waiting and m.given_label is None else m for m in members]
    inside: dict[int, list[Member]] = {number: [] for number, _ in named}
    for member in members:
        if member.category_id != POOL:
            inside[member.category_id].append(member)
    categories = [category_of(number, name, c >= known, inside[number]) for c, (number, name) in enumerate(named)]
    return Discovery(run.folder, categories, members, table.skipped + embedded.skipped)


def unlike_of(assignment: Assignment) -> list[float]:
    """How unlike its category each image is, rounded as it is written."""
    unlike = assignment.unlike
    assert unlike is not None, "a model of a run is calibrated"
    return [round(value, 3) for value in unlike.tolist()]


def read_features(run: Run) -> Tensor:
    """(n, D) of the images of a run, in the order of its `assignments.csv`."""
    file = run.verified(FEATURES)
    try:
        return load_file(file)["features"]
    except FileNotFoundError:
        raise NewkindsError(f"{file} is missing: run newkinds discover again.") from None
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        why = "it holds no features" if isinstance(error, KeyError) else str(error)
        raise NewkindsError(f"{file} is damaged ({why}): delete it and run newkinds discover again.") from None


def load(run: str | Path, device: str = "auto") -> LoadedRun:
    """Open a finished run directory."""
    opened = Run(run)
    return LoadedRun(opened, load_model(opened.config(), opened.verified("model.safetensors"), choose_device(device)))


def ensure_assigned(run: Run) -> None:
    """Assign the images of a run that has only been trained."""
    if not run.path("assignments.csv").is_file():
        load(run.folder).discover(images_of(run))


def images_of(run: Run) -> Table:
    """The images that a run was started with. Others that were added since are left out, which is said; if its own
    ones changed, that is an error."""
    earlier = earlier_images(run)
    table = load_table(run.config().data)
    skipped = {one.path for one in read_skipped(run)}
    copies = copies_left_out(run)
    added = [path for path in table.paths if path not in earlier and path not in skipped] if earlier else []
    if added:
        warn(
            f"{len(added)} image(s) were added since {run.folder} was started, such as {added[0]}: they are left out "
            f"here. newkinds update {run.folder} puts them into its categories, which stay as they are."
        )
    if added or copies:
        own = {*earlier, *skipped} - copies
        table = table.rows([row for row, path in enumerate(table.paths) if path in own])
    table = readable(table, contents=True, earlier=earlier)
    require_same_images(run, table)
    return table


def require_unanswered(run: RunDirectory) -> None:
    """Refuse a run whose answer is gone: a command that finds its categories again was stopped in the middle.

    Its model would answer, but without the names and corrections that people made.
    """
    if run.was_written("assignments.csv"):
        raise NewkindsError(
            f"{run.folder} has no assignments.csv any more: a command that finds its categories again was stopped, so "
            "names and corrections cannot be applied. Rerun that command (newkinds discover … or newkinds assign "
            f"{run.folder} …) to complete it."
        )
