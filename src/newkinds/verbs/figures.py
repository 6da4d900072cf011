"""Pictures that explain a finished run: attention, primitives, a map of the features, confusion, parts."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from ..console import say, warn
from ..data import load_table
from ..data.creatures.drawing import PARTS
from ..data.images import BadImage
from ..data.table import Table
from ..discovery.figures.alphabet import EXAMPLES, alphabet_figure, crop, letters
from ..discovery.figures.attention_maps import attention_figure
from ..discovery.figures.confusion import confusion_figure, confusion_of
from ..discovery.figures.field_maps import fields_figure
from ..discovery.figures.part_chart import parts_figure
from ..discovery.figures.scatter import MOST_MAPPED, Scattered, map_figure, places_of
from ..discovery.figures.sheet import Drawing
from ..discovery.finished import ensure_assigned, load, read_features
from ..encoders.backbone import Backbone
from ..encoders.backbones import build_backbone
from ..errors import NewkindsError
from ..evaluation.judge import table_with_truth, true_classes
from ..evaluation.part_agreement import CELLS, FIELD, KMEANS, PartReport, foreground_of, no_primitives, parts_of
from ..files import csv_text, json_text, make_folder, refuse_inputs
from ..ownership import OwnFiles
from ..runs.config import DRAWN
from ..runs.run import Run
from ..training.embedding import attention_of, details_of, fields_of

FIGURES = "figures"  # the folder in a run
SHOWN = 8
MOST_SHOWN = 60  # rows of a figure
MOST_SEARCHED = 1000  # images in which the strongest patches of each primitive are looked for; of more, a sample
MOST_MAPS = 16  # primitives drawn beside each image


@dataclass(frozen=True)
class Drawn:
    """What `figures` wrote."""

    folder: Path
    files: list[Path] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # figure → why it could not be drawn
    parts: PartReport | None = None  # only on creatures, whose true parts are known


def figures(
    run: str | Path, against: str | Path | None = None, out: str | Path | None = None, examples: int = SHOWN,
    truth: str | Path | None = None, device: str = "auto",
) -> Drawn:  # fmt: skip
    """Draw what a finished run sees and found, as PNG and SVG in RUN/figures, or in the folder `out`.

    attention: what the class token looks at, in the run `against` (the host, say) or in the backbone as it was before
    training, and in this run; primitives: where each is active in the same images; alphabet: the patches that activate
    each primitive most, across categories; map: all features in two dimensions; confusion: true classes against
    categories, if the truth is known (`truth` as in `evaluate`); parts: what primitives have to do with the true parts,
    on creatures. What cannot be drawn is skipped, and reported.

    >>> newkinds.figures("runs/cpf", against="runs/host").skipped
    {}
    """
    if not 1 <= examples <= MOST_SHOWN:
        raise NewkindsError(f"--examples {examples} does not fit into a figure: 1 to {MOST_SHOWN} do.")
    subject = _Subject(run, truth, device)
    host = None if against is None else _Subject(against, truth, device)
    if host is not None and not set(host.paths) & set(subject.paths):
        raise NewkindsError(f"{against} is a run on other images than {run}: compare runs on the same images.")
    folder = make_folder(Path(out) if out is not None else subject.run.path(FIGURES))
    return _Drawing(subject, host, folder, examples).all()


class _Subject:
    """A finished run, as far as it can still be shown: its images may have gone."""

    def __init__(self, folder: str | Path, truth: str | Path | None, device: str) -> None:
        self.run = Run(folder)
        self.config = self.run.config()
        self.model = load(folder, device).model
        ensure_assigned(self.run)
        self.members = self.run.read_table("assignments.csv", ("path", "given_label", "category", "confidence"))
        self.features = read_features(self.run)
        if len(self.features) != len(self.members):
            sizes = f"features.safetensors has {len(self.features)} rows, assignments.csv {len(self.members)}"
            raise NewkindsError(f"{self.run.folder}: {sizes}: run newkinds discover again.")
        if not self.members:
            raise NewkindsError(f"{self.run.folder} has no image that could be read: there is nothing to draw.")
        self._table: Table | NewkindsError
        try:
            self._table = load_table(self.config.data)
            if self._table.vectors is not None:
                self._table = NewkindsError("ready-made vectors have no pictures.")
        except NewkindsError as error:
            self._table = error
        self.paths = [member["path"] for member in self.members]
        self.truth_of, self.no_truth = self._truth(truth)
        # true classes if all are known, else categories
        self.by_truth = all(path in self.truth_of for path in self.paths)
        self.kind = [self.truth_of[m["path"]] if self.by_truth else m["category"] for m in self.members]
        self.is_new = [
            kind not in self.model.known if self.by_truth else member["is_new"] == "true"
            for kind, member in zip(self.kind, self.members, strict=True)
        ]

    @property
    def name(self) -> str:
        """What it is: the method, and the organizer if there is one."""
        method, organizer = self.config.method["name"], self.config.organizer["name"]
        return method if organizer == "none" else f"{method} + {organizer}"

    @property
    def table(self) -> Table:
        if isinstance(self._table, NewkindsError):
            raise NewkindsError(f"the images are needed: {self._table}")
        return self._table

    def image_files(self) -> list[Path]:
        return self._table.files() if isinstance(self._table, Table) else []

    def _truth(self, truth: str | Path | None) -> tuple[dict[str, str], str]:
        """Path → true class, as far as it is known; and why it is not."""
        try:
            given = table_with_truth(self.config, truth)
        except NewkindsError as error:
            if truth is not None:
                raise
            return {}, str(error)
        labelled = {member["path"]: member["given_label"] for member in self.members if member["given_label"]}
        return true_classes([path for path in self.paths if path not in labelled], given) | labelled, ""

    def rows(self, places: Sequence[int]) -> dict[int, int]:
        """Place among the members → row of the table, of those that are still there."""
        row_of = {path: row for row, path in enumerate(self.table.paths)}
        return {place: row_of[self.paths[place]] for place in places if self.paths[place] in row_of}

    def typical(self, count: int) -> list[int]:
        """Places of the surest image of each of the largest categories, known and new in turn, that can be opened."""
        places = list(range(len(self.members)))
        row_of = self.rows(places)
        sure = [float(member["confidence"]) for member in self.members]
        best_first = sorted(row_of, key=lambda place: (bool(self.members[place]["given_label"]), -sure[place]))
        of_category: dict[tuple[bool, str], list[int]] = {}
        for place in best_first:
            member = self.members[place]
            of_category.setdefault((member["is_new"] == "true", member["category"]), []).append(place)
        largest = sorted(of_category, key=lambda category: -len(of_category[category]))
        sides = [[category for category in largest if category[0] == new] for new in (False, True)]
        known = max(count - len(sides[1]), min(len(sides[0]), -(-count // 2)))
        chosen = [*sides[0][:known], *sides[1][: count - min(known, len(sides[0]))]]
        found = []
        for category in chosen:
            readable = (place for place in of_category[category] if self._can_be_opened(row_of[place]))
            found += [place for place in [next(readable, None)] if place is not None]
        if not found:
            raise NewkindsError("none of the images of this run can be opened any more.")
        return found

    def _can_be_opened(self, row: int) -> bool:
        try:
            self.table.open(row)
        except BadImage:
            return False
        return True

    def caption(self, place: int) -> str:
        member = self.members[place]
        return f"{'new' if member['is_new'] == 'true' else 'known'}: {member['category']}"


class _Drawing:
    """The figures of one run, each written as soon as it is drawn."""

    def __init__(self, subject: _Subject, host: _Subject | None, folder: Path, examples: int) -> None:
        self.subject, self.host, self.examples = subject, host, examples
        self.encoder, self.device = subject.model.encoder, subject.model.device
        self.drawn, self.own = Drawn(folder), OwnFiles(folder)
        self.seed = subject.config.train.seed
        self.report: PartReport | None = None

    def all(self) -> Drawn:
        figures: dict[str, Callable[[], Drawing]] = {
            "attention": self.attention,
            "primitives": self.primitives,
            "alphabet": self.alphabet,
            "map": self.map,
            "confusion": self.confusion,
        }
        if self.subject.config.data["name"] in DRAWN:
            figures["parts"] = self.parts
        written = [f"{name}.{format}" for name in figures for format in ("png", "svg")]
        self.refuse_inputs([*written, "alphabet.csv", "confusion.csv", "parts.json"])
        for name, draw in figures.items():
            try:
                picture = draw()
            except (NewkindsError, BadImage) as error:  # an image may vanish at any moment
                self.drawn.skipped[name] = str(error)
                warn(f"{name} skipped: {error}")
                continue
            for file, content in picture.files(name).items():
                self.write(file, content)
            say(f"drawn: {self.drawn.folder / name}.png and .svg")
        return Drawn(self.drawn.folder, self.drawn.files, self.drawn.skipped, self.report)

    def refuse_inputs(self, names: Sequence[str]) -> None:
        """No figure replaces an image or a file of a run."""
        subjects = [subject for subject in (self.subject, self.host) if subject is not None]
        inputs = [file for subject in subjects for file in (*subject.run.own_files(), *subject.image_files())]
        for name in names:
            refuse_inputs(self.drawn.folder / name, inputs)
            self.own.require(name)

    def write(self, name: str, content: bytes | str) -> None:
        self.own.write(name, content)
        self.drawn.files.append(self.drawn.folder / name)

    # ---------------------------------------------------------------------------------- what the encoder sees
    def attention(self) -> Drawing:
        places = self.subject.typical(self.examples)
        rows = list(self.subject.rows(places).values())
        table = self.subject.table
        now = attention_of(self.encoder.backbone, table, rows, self.device)
        seen = [(self.subject.name, now.weights, now.grid)]
        note = "Where the class token looks in the last block, mean of all heads; one scale per image."
        before = self.before()
        if before is None:
            note += " The backbone is frozen: an organizer, which comes after it, cannot change this."
        else:
            name, backbone = before
            other = attention_of(backbone, table, rows, self.device)
            seen.insert(0, (name, other.weights, other.grid))
        return attention_figure(list(now.views), seen, [self.subject.caption(place) for place in places], note)

    def before(self) -> tuple[str, Backbone] | None:
        """What the backbone is compared with: the other run's, or itself before training; None if it never trained."""
        if self.host is not None:
            return self.host.name, self.host.model.encoder.backbone
        if self.encoder.backbone.is_fixed or self.subject.model.frozen:
            return None
        return "before training", build_backbone(**self.subject.config.backbone)

    def primitives(self) -> Drawing:
        places = self.subject.typical(self.examples)
        fields = fields_of(self.encoder, self.subject.table, list(self.subject.rows(places).values()), self.device)
        if fields is None:
            raise no_primitives(self.subject.config)
        captions = [self.subject.caption(place) for place in places]
        return fields_figure(list(fields.views), list(fields.shares), fields.grid, captions, MOST_MAPS)

    def alphabet(self) -> Drawing:
        subject = self.subject
        available = subject.rows(range(len(subject.members)))
        places = self.sample(list(available), MOST_SEARCHED)
        table = subject.table.rows([available[place] for place in places])
        peaks, patches, won, read = [], [], [], []
        grid = (0, 0)
        for seen in details_of(self.encoder, table, self.device):
            if seen.encoded.field is None or seen.encoded.grid is None:
                raise no_primitives(self.subject.config)
            grid = seen.encoded.grid
            share = seen.encoded.field.float()  # (b, N, M)
            peak, patch = share.max(dim=1)  # (b, M) each
            peaks.append(peak.cpu())
            patches.append(patch.cpu())
            won.append(torch.nn.functional.one_hot(share.argmax(dim=2), share.shape[2]).float().mean(dim=1).cpu())
            read += seen.rows
        if not read:
            raise NewkindsError("none of the images of this run can be opened any more.")
        if gone := len(subject.members) - len(available) + len(places) - len(read):
            warn(f"{gone} image(s) of {subject.run.folder} are gone or cannot be opened any more: they are left out.")
        read_places = [places[row] for row in read]
        kinds = [subject.kind[place] for place in read_places]
        new = [subject.is_new[place] for place in read_places]
        used = torch.cat(won).mean(dim=0).numpy()
        found = letters(torch.cat(peaks).numpy(), torch.cat(patches).numpy(), used, kinds)
        views = {image: self.view(table, read[image]) for letter in found for image in letter.images}
        crops = [
            [
                None if (view := views[image]) is None else crop(view, patch, grid)
                for image, patch in zip(letter.images, letter.patches, strict=True)
            ]
            for letter in found
        ]
        listed = [
            (letter.primitive, f"{share:.4f}", *divmod(patch, grid[1]), kinds[image], subject.paths[read_places[image]])
            for letter in found
            for image, patch, share in zip(letter.images, letter.patches, letter.shares, strict=True)
        ]
        self.write("alphabet.csv", csv_text(("primitive", "share", "row", "column", "category", "path"), listed))
        note = (
            f"The patches (framed, with surroundings) in which each primitive has its largest share, in {len(read):,} "
            f"images:\nat most one per image, up to {EXAMPLES}, of different categories as far as there are. "
            "Frame: known category, dashed: new."
        )
        return alphabet_figure(found, crops, new, kinds, note)

    def view(self, table: Table, row: int) -> np.ndarray | None:
        """What the encoder sees of an image, (H, W, 3); None if the file has vanished meanwhile."""
        preprocessing = self.encoder.backbone.preprocessing
        try:
            seen = preprocessing.centre_view(preprocessing.resize(table.open(row)))
        except BadImage:
            return None
        return seen.permute(1, 2, 0).numpy()

    def sample(self, places: list[int], most: int) -> list[int]:
        if len(places) <= most:
            return places
        chosen = np.random.default_rng(self.seed).choice(len(places), most, replace=False)
        return [places[i] for i in np.sort(chosen)]

    # ------------------------------------------------------------------------------------------ what was found
    def map(self) -> Drawing:
        maps, how = [], ""
        for subject in filter(None, (self.host, self.subject)):
            places = self.sample(list(range(len(subject.members))), MOST_MAPPED)
            with torch.inference_mode():
                embedding = subject.model.embedding(subject.features[places].to(subject.model.device))
            at, how = places_of(embedding.float().cpu().numpy(), self.seed)
            kinds, new = [subject.kind[place] for place in places], [subject.is_new[place] for place in places]
            maps.append(Scattered(subject.name, at, kinds, new))
        of = "true class" if self.subject.by_truth else "category"
        shown, every = len(maps[-1].category), len(self.subject.members)
        some = f"{shown:,} of {every:,} images" if shown < every else f"{every:,} images"
        return map_figure(maps, f"{some} by {how}; each is tied to the middle of its {of}.")

    def confusion(self) -> Drawing:
        subject = self.subject
        unlabelled = [member for member in subject.members if not member["given_label"]]
        judged = [member for member in unlabelled if member["path"] in subject.truth_of]
        if not judged:
            reason = "no true class of the unlabelled images is known: give them with --truth."
            raise NewkindsError(subject.no_truth or reason)
        if len(judged) < len(unlabelled):
            warn(f"{len(unlabelled) - len(judged)} unlabelled image(s) have no true class: they are left out.")
        true = [subject.truth_of[member["path"]] for member in judged]
        confusion = confusion_of(true, [member["category"] for member in judged], subject.model.known)
        cells = [(confusion.classes[r], confusion.categories[c], n) for (r, c), n in np.ndenumerate(confusion.counts)]
        self.write("confusion.csv", csv_text(("true class", "category", "images"), [cell for cell in cells if cell[2]]))
        note = (
            f"{len(judged):,} unlabelled images; the diagonal is the best match ({100 * confusion.accuracy:.1f} %); "
            "dashed: known classes before, new ones after."
        )
        return confusion_figure(confusion, note)

    def parts(self) -> Drawing:
        config = self.subject.config
        report = self.report = parts_of(self.subject.model, config)
        looks = [(self.subject.name, self.encoder.backbone), *filter(None, [self.before()])]
        content = report.as_json()
        if self.encoder.backbone.has_class_token:
            found = {name: foreground_of(backbone, config, self.device) for name, backbone in looks}
            content["attention"] = {name: asdict(foreground) for name, foreground in found.items()}
        self.write("parts.json", json_text(content, self.drawn.folder / "parts.json", indent=1) + "\n")
        note = (
            f"How the patches of each group are spread over the true parts, in %; largest groups first. "
            f"{report.images:,} images, {report.patches:,} patches."
        )
        return parts_figure({way: report.counts[way] for way in (FIELD, KMEANS, CELLS)}, PARTS, note)
