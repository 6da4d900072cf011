"""Encoder and method together: what a run trains, saves and predicts with."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ..assigners import ASSIGNERS, Assigner, Assignment
from ..assigners.base import CannotAssign
from ..assigners.calibration import Calibration, HeldOutImages
from ..assigners.extension import Extension
from ..assigners.known_clusters import Naming
from ..assigners.whitening import Whitening
from ..data.batch import Batch, Inputs
from ..data.loader import seed_for
from ..encoders.backbones import build_backbone
from ..encoders.encoder import Encoder
from ..encoders.organizers import ORGANIZERS
from ..encoders.weights import require_finite
from ..errors import NewkindsError
from ..methods import METHODS, Method, Progress, Step
from ..runs.config import OWN, Config
from .device import MixedPrecision
from .distributed import gather_batch, place_in_batch
from .pieces import encode_in_pieces
from .teacher import Teacher

T = TypeVar("T")
AFTER_TRAINING = ("naming.", "calibration.")  # found once, at the end
ASSIGNED_AT_ONCE = 2**16  # images: each has a score for every category
REPLACED = ("assigner.", "whitening.", *AFTER_TRAINING)  # found after training: what `newkinds assign` replaces


class Model(nn.Module):
    """A trained (or trainable) discoverer. Categories 0..C-1 are the known classes, the others are new."""

    def __init__(self, encoder: Encoder, method: Method, known: list[str], k: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.method = method
        self.assigner: Assigner | None = None  # in the place of the method's own
        self.whitening: Whitening | None = None
        self.teacher: Teacher | None = None  # in training, if the method wants one
        self.frozen = False  # nothing is trained: the method's head is not used
        self.begins_organized = False  # the organizer has the weights of another run, and needs no look at tokens first
        self.naming = Naming()
        self.calibration = Calibration()
        self.known = known
        self.k = k  # clusters that the assigner looks for
        self.precision = MixedPrecision("float32", torch.device("cpu"))  # of the encoder in training
        self.micro_batch: int | None = None  # images that are encoded at once in training; None: the whole batch

    @property
    def device(self) -> torch.device:
        return next(chain(self.parameters(), self.buffers())).device  # on ready-made vectors nothing may train

    def components(self) -> dict[str, nn.Module]:
        """The parts whose parameters are counted and trained separately."""
        backbone, organizer = self.encoder.backbone, self.encoder.organizer
        return {"backbone": backbone.network, "tuning": backbone.tuning, "organizer": organizer, "head": self.method}

    def forward(self, batch: Batch, progress: Progress) -> dict[str, Tensor]:
        """The losses of a batch: "loss" is the sum that is minimised, the organizer's own included."""
        encoded = self._in_pieces(partial(self.encoder, prompts=self.method.reads_prompts), batch.inputs, batch)
        encoded = replace(encoded, feature=encoded.feature.float())
        taught = None
        if self.teacher is not None:
            taught = self._in_pieces(self.teacher, batch.for_teacher or batch.inputs, batch)
        if batch.whole is not None:
            labels, index, encoded, taught = gather_batch((batch.labels, batch.index, encoded, taught), batch.whole)
            batch = replace(batch, labels=labels, index=index)
        losses = self.method.loss(Step(batch, encoded, progress, taught))
        _require_losses(losses, type(self.method))
        own = self.encoder.organizer.loss(encoded, batch.labels, progress.epoch)
        total = losses["loss"] + sum(value.float() for value in own.values())
        return {**losses, **{f"organizer/{name}": value for name, value in own.items()}, "loss": total}

    def _in_pieces(self, encode: Callable[[Inputs], T], inputs: Inputs, batch: Batch) -> T:
        """Views of a batch encoded, no more images at once than `micro_batch`."""

        def encode_mixed(some: Inputs) -> T:
            with self.precision.autocast():
                return encode(some)

        images = len(batch.labels)
        return encode_in_pieces(encode_mixed, inputs, images, self.micro_batch or images, place_in_batch(batch.whole))

    def embedding(self, features: Tensor) -> Tensor:
        """Unit rows (n, P) of features (n, D): the space in which categories are found and counted."""
        rows = self.rows(features)
        return rows if self.whitening is None else self.whitening(rows)

    @property
    def space(self) -> Whitening | None:
        """Where categories are compared: rows as the assigner itself whitens them, or by labels; None: as they are."""
        own = self.chosen_assigner.own_space()
        return self.whitening if own is None or self.whitening is not None else Whitening.of(*own)

    def space_of(self, rows: Tensor, cluster: Tensor, labels: Tensor) -> Whitening | None:
        """As `space`, if it had found unit rows (n, P) in these clusters (n,; -1: none) with labels (n,; -1: none)."""
        if self.whitening is not None:
            try:
                return self.whitening.refit(rows, labels)
            except CannotAssign:  # such as one label for each class
                return None
        inside = cluster >= 0
        own = self.chosen_assigner.own_space_of(rows[inside], cluster[inside], labels[inside] >= 0)
        return None if own is None else Whitening.of(*own)

    def compare(self, features: Tensor) -> Tensor:
        """Unit rows (n, P) of features (n, D) in the space where categories are compared."""
        rows, space = self.rows(features), self.space
        return rows if space is None else space(rows)

    def rows(self, features: Tensor) -> Tensor:
        """The embedding before it is whitened."""
        return F.normalize(features.float(), dim=1) if self.frozen else self.method.embedding(features)

    @property
    def chosen_assigner(self) -> Assigner:
        return self.method.assigner() if self.assigner is None else self.assigner

    @property
    def categories(self) -> int:
        """How many there are: `k`, and one more for every known class whose labelled images make no cluster."""
        return self.naming.categories(self.k)

    @torch.no_grad()
    def find_categories(self, features: Tensor, labels: Tensor, seed: int) -> None:
        """Fit whitening and assigner to the features (n, D) of all training images with labels (n,; -1: none), and let
        the labelled ones say which clusters are the known classes."""
        features, labels = features.to(self.device), labels.to(self.device)
        with torch.random.fork_rng(devices=[]):
            if self.whitening is not None:
                torch.default_generator.manual_seed(seed_for("whitening", seed))
                self.whitening.fit(self.rows(features), labels)
            if not self.chosen_assigner.learnt:
                torch.default_generator.manual_seed(seed_for("categories", seed))
                self.chosen_assigner.fit(self.embedding(features), labels)
                self.k = self.chosen_assigner.categories  # some find how many there are
        self._name_clusters(features, labels)

    def _name_clusters(self, features: Tensor, labels: Tensor) -> None:
        assigner = self.chosen_assigner
        if not assigner.learnt and not assigner.begins:
            return  # people have seen and named these categories already
        labelled = labels >= 0
        parts = features[labelled].split(ASSIGNED_AT_ONCE) if bool(labelled.any()) else ()
        logits = (self.chosen_assigner(self.embedding(part)) for part in parts)
        clusters = [Assignment.of_logits(scores).category for scores in logits]
        self.naming.fit(torch.cat([labels[:0], *clusters]), labels[labelled], len(self.known), self.k)

    @torch.no_grad()
    def calibrate(
        self, features: Tensor, labels: Tensor, seed: int, evidence: Sequence[HeldOutImages] | None = None
    ) -> None:
        """After the categories were found: how sure their images are, see `Calibration.fit`.

        `evidence`: of trainings like this one, each on a part of the labels.
        """
        rows = self.rows(features.to(self.device))
        labels = labels.to(self.device)
        assigner = self.chosen_assigner
        embedding = rows if self.whitening is None else self.whitening(rows)
        parts = embedding.split(ASSIGNED_AT_ONCE)
        category = torch.cat([Assignment.of_logits(self.naming(assigner(part))).category for part in parts])
        # a known class that is no cluster has only its labelled images, and so its centre among them
        alone = (labels >= 0) & ~torch.isin(labels, category)
        category = torch.where(alone, labels, category)
        seed = seed_for("calibration", seed)
        self.calibration.fit(
            rows, labels, category, assigner, self.whitening, seed, evidence, self.categories, trained=not self.frozen
        )

    def describe_found(self) -> dict[str, str]:
        """What was chosen when the categories were found, for the protocol; kept in the model's file."""
        notes = {
            "embedding": self.whitening.note if self.whitening else "",
            "assigner": self.chosen_assigner.note,
            "calibration": self.calibration.note,
        }
        return {part: note for part, note in notes.items() if note}

    @torch.inference_mode()
    def assign(self, features: Tensor, extension: Extension | None = None, inside: bool = False) -> Assignment:
        """Categories for features (n, D), by the model alone, or with other categories besides its own. `inside`: of
        the images that its categories were found in, and not of others, see `Calibration`."""
        if not bool(features.isfinite().all()):  # NaN would get a category too
            raise NewkindsError("the model gives features that are NaN or infinite: its weights are damaged.")
        blocks = features.split(ASSIGNED_AT_ONCE)
        assigned = [self._assign(block.to(self.device), extension=extension, inside=inside) for block in blocks]
        unlike = [block.unlike for block in assigned if block.unlike is not None]
        return Assignment(
            torch.cat([block.category for block in assigned]),
            torch.cat([block.confidence for block in assigned]),
            torch.cat(unlike) if unlike else None,
        )

    @torch.inference_mode()
    def keep_labels(self, found: Assignment, features: Tensor, labels: Tensor) -> Assignment:
        """What was found, but that labelled images (labels (n,), -1: none) are in their class: labels are the user's
        word. The confidence of an image that the model had put elsewhere is that it belongs to its class."""
        labels = labels.to(found.category.device)
        moved = (labels >= 0) & (labels != found.category)
        if not bool(moved.any()):
            return found
        own = self._assign(features[moved.cpu()].to(self.device), labels[moved])
        confidence = found.confidence.masked_scatter(moved, own.confidence.to(found.confidence))
        return replace(found, category=torch.where(moved, labels, found.category), confidence=confidence)

    def _assign(
        self, features: Tensor, category: Tensor | None = None, extension: Extension | None = None, inside: bool = False
    ) -> Assignment:
        """By the largest logit, or how well the images fit a given `category` (n,)."""
        assigner = self.chosen_assigner
        rows = self.rows(features)
        embedding = rows if self.whitening is None else self.whitening(rows)
        assignment = Assignment.of_logits(self.naming(assigner(embedding)), assigner.temperature, category)
        if not self.calibration.fitted:
            return assignment
        if extension is not None:
            return extension(rows, assignment, self.calibration, self.whitening, self.space)
        return self.calibration(rows, assignment, self.whitening, inside=inside)

    def changing_state(self) -> dict[str, Tensor]:
        """All of the state but the frozen weights, which come from their file again, and what comes after training."""
        backbone = self.encoder.backbone.named_parameters(prefix="encoder.backbone")
        frozen = {name for name, parameter in backbone if not parameter.requires_grad}
        return {
            name: value
            for name, value in self.state_dict().items()
            if name not in frozen and not name.startswith(AFTER_TRAINING)
        }

    def checkpoint(self) -> bytes:
        """What training changes, as it is now: `train.start` begins with it."""
        state = self.changing_state()
        return self._safetensors({name: value for name, value in state.items() if not name.startswith("teacher.")})

    def as_safetensors(self) -> bytes:
        """All weights, frozen ones too: a run needs no other file to be used."""
        return self._safetensors(self.state_dict())

    def _safetensors(self, state: Mapping[str, Tensor]) -> bytes:
        # clone: safetensors refuses tensors that share memory, as tied weights do
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
        about: dict[str, Any] = {"known": self.known, "k": self.k}
        if found := self.describe_found():
            about["found"] = found
        # one entry: safetensors writes several in a random order, and equal models must be equal files
        return save(tensors, {"newkinds": json.dumps(about)})


def build_model(config: Config, known: list[str], k: int, load_weights: bool = True) -> Model:
    """The model a config describes, with the same random start for the same seed.

    The head has its own seed, so that runs with and without an organizer start from the same head. The
    caller's random numbers are not disturbed.
    """
    seed = config.train.seed
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_for("tuning", seed))
        backbone = build_backbone(**config.backbone, tuning=config.tuning, load_weights=load_weights)
        torch.default_generator.manual_seed(seed_for("organizer", seed))
        organizer = ORGANIZERS[config.organizer["name"]](backbone.dim, **_settings(config.organizer))
        torch.default_generator.manual_seed(seed_for("head", seed))
        method_class = METHODS[config.method["name"]]
        method = method_class(method_class.Config(**_settings(config.method)), backbone.dim, len(known), k)
    if method.reads_prompts and not backbone.tuning.extra and config.train.epochs:
        raise NewkindsError(
            f"{config.method['name']} reads prompts, which the tuning '{config.tuning['name']}' does not have: "
            "leave out --tuning."
        )
    views = (len(method.views.student), len(method.views.teacher) or 2)
    if backbone.tuning.pairs_views and views != (2, 2) and config.train.epochs:
        raise NewkindsError(
            f"the tuning '{config.tuning['name']}' needs two views of every image in a step, which "
            f"{config.method['name']} does not have: choose another --tuning (pixels: or --set tuning.alternate=0)."
        )
    model = Model(Encoder(backbone, organizer), method, known, k)
    if not config.train.epochs:
        model.frozen = True
        model.requires_grad_(False)
    _replace_assigner(model, config)
    return model


def _replace_assigner(model: Model, config: Config) -> None:
    """What a config puts in the place of the method's own assigner, and in front of it."""
    name = config.assigner["name"]
    own = model.method.assigner()
    dim = model.encoder.dim if model.frozen else model.method.embedding_dim
    if name != OWN:
        model.assigner = ASSIGNERS[name](dim, len(model.known), model.k, **_settings(config.assigner))
    elif model.frozen and own.learnt:
        model.assigner = ASSIGNERS["sskmeans"](dim, len(model.known), model.k)
        model.assigner.note = "sskmeans instead of untrained prototypes"
    if (whiten := config.embedding["whiten"]) != "none":
        if model.chosen_assigner.learnt:
            raise NewkindsError(
                f"the prototypes of {config.method['name']} are learnt in training and cannot be whitened: "
                "choose an assigner that is fitted after training (--assigner sskmeans), or leave out --whiten."
            )
        model.whitening = Whitening(whiten)


def describe_loss(part: type) -> str:
    """Where the loss of a method or an organizer is, for its author: `Mine.loss of /home/me/mine.py`."""
    file = getattr(sys.modules.get(part.__module__), "__file__", None)  # a notebook has none
    is_own = part.__module__.partition(".")[0] == __name__.partition(".")[0]
    where = f"the module {part.__module__}" if is_own or file is None else file
    return f"{part.__name__}.loss of {where}"


def _require_losses(losses: Any, method: type[Method]) -> None:
    """Refuse what a method of others may return instead of its losses, and say whose it is."""
    where = describe_loss(method)
    if not isinstance(losses, dict) or "loss" not in losses:
        raise NewkindsError(f"what {where} returns is no dictionary with a 'loss' to minimise.")
    for name, value in losses.items():
        if not isinstance(value, Tensor) or value.ndim:
            what = f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise NewkindsError(f"'{name}' among what {where} returns is {what}, not a tensor of one number.")


def load_model(config: Config, path: Path, device: torch.device, find_anew: bool = False) -> Model:
    """The model of a run directory, from its own files alone; `find_anew`: another assigner than the file's."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {})["newkinds"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        known, k = list(metadata["known"]), int(metadata["k"])
    except FileNotFoundError:
        raise NewkindsError(f"there is no {path}: finish the training first (newkinds train or discover).") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        why = f": {error}" if isinstance(error, (SafetensorError, OSError)) else ""  # others name what we looked for
        raise NewkindsError(f"{path} is damaged or not a newkinds model{why}.") from None
    model = build_model(config, known, k, load_weights=False)
    require_finite(tensors, dict(model.named_parameters()), path)  # a centre without members may be NaN
    if find_anew:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(REPLACED)}
        tensors |= {name: tensor for name, tensor in model.state_dict().items() if name.startswith(REPLACED)}
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        first = " ".join(str(error).split("\n")[1:2]).strip()
        raise NewkindsError(
            f"{path} does not fit {path.parent / 'config.yaml'} (another architecture?): {first}"
        ) from None
    return model.to(device).eval()


def _settings(section: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name != "name"}
