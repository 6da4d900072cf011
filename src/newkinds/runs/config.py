"""All settings of a run: defaults ► the method's ► the backbone family's ► recipe file ► `--set section.name=value`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml

from ..assigners import ASSIGNERS
from ..data import DATASETS
from ..data.corrections import SETTINGS as CORRECTED
from ..data.more import SETTING as MORE
from ..data.published.base import data_root
from ..data.vectors import NAME as READY_MADE
from ..encoders.auto import AUTO
from ..encoders.backbones import TINY, VECTORS, build_backbone
from ..encoders.families import CPF_DEFAULTS, TRAIN_DEFAULTS, Family, FamilyChoice, family_of
from ..encoders.organizers import ORGANIZERS
from ..encoders.tunings import TUNINGS
from ..errors import NewkindsError
from ..files import checksum, user_path
from ..methods import METHODS
from ..registry import Registry
from ..settings import (
    AtLeastOne,
    NonNegative,
    Range,
    WholeNumber,
    coerce,
    merge_layers,
    name_of,
    section_of,
    section_of_chosen,
)
from .records import OutsidePart

REGISTRIES: dict[str, Registry] = {
    "data": DATASETS, "tuning": TUNINGS, "organizer": ORGANIZERS, "method": METHODS, "assigner": ASSIGNERS,
}  # fmt: skip
OWN = "own"  # the method's own assigner
LAST_BLOCKS = "blocks"  # the tuning that adds nothing
NO_START = "none"  # the value of train.start for a second stage without its first
DRAWN = ("creatures", "creatures-large")  # the data sets for which a backbone is bundled
BUNDLED = {**dict.fromkeys(DRAWN, TINY), READY_MADE: VECTORS}  # the backbone of data that needs no other
MOST_WORKERS = 256  # a thousand processes would start for minutes, and read no faster
MOST_VIEWS = 10_000  # of an image in a cache; more is a slip of the keyboard


@dataclass
class TrainConfig:
    """The training loop. Defaults are those the published hosts share."""

    epochs: WholeNumber = 200
    epoch_size: AtLeastOne | None = None  # images drawn in an epoch; by default as many as there are
    batch_size: AtLeastOne = 128  # images; each gives two views
    # images that a process encodes at once: fewer take less memory and more time, and the gradient is the same
    micro_batch: AtLeastOne | None = None
    lr: NonNegative = 0.1
    min_lr_ratio: NonNegative = 1e-3  # the cosine ends at lr · min_lr_ratio
    lr_cycle: WholeNumber = 0  # epochs of a cosine, after which the next one begins at lr again; 0: one for all epochs
    momentum: NonNegative = 0.9
    weight_decay: NonNegative = 5e-5
    draw: Literal["half_labelled", "by_total"] = "half_labelled"  # weight of an unlabelled image: n_l/n_u or n_l/n
    decay_biases: bool = False  # also decay biases and other one-dimensional parameters
    backbone_lr_ratio: NonNegative = 1.0  # the learning rate of the backbone's trained blocks over lr, the head's
    tuning_lr_ratio: NonNegative = 1.0  # the tuning's learning rate over the head's
    tuning_decay: NonNegative | None = None  # of the tuning's parameters; by default weight_decay
    organizer_lr_ratio: NonNegative = 1.0  # the organizer's learning rate over the head's
    organizer_optimizer: Literal["sgd", "adamw"] = "sgd"  # adamw wants a far smaller rate, e.g. 4e-4 in all
    organizer_decay: NonNegative | None = None  # of its matrices; by default weight_decay, for adamw 0.05
    organizer_warmup: WholeNumber = 0  # epochs in which its learning rate rises, step by step
    organizer_clip: NonNegative = 0.0  # largest norm of its gradient; 0 = any
    freeze_organizer: bool = False  # leave the organizer at its random start, as a control
    eval_every: WholeNumber = 0  # epochs between evaluations in metrics.jsonl; 0 = never; nothing is chosen by them
    keep_every: WholeNumber = 0  # epochs after which the weights stay in checkpoint-NNNN.safetensors; 0 = never
    # the weights of the epoch that is best on a fifth of the labels, which training does not see, become the model's
    keep_best: bool = False
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    tf32: bool = False  # on CUDA, products of float32 numbers by their first 10 bits: faster
    compile: bool = False  # blocks of the backbone by torch.compile
    deterministic: bool = False  # only algorithms that give the same bits each time; what has none is an error
    device: str = "auto"
    workers: Annotated[int, Range(-1, MOST_WORKERS)] = -1  # processes of a machine that read images; -1: by itself
    seed: WholeNumber = 0
    start: str | None = None  # a finished run whose weights training begins with; none: those of the backbone's file
    # fixed random views of each image whose tokens are computed once (a step takes two of them); 0 = fresh views at
    # every step, from the pixels; 1 = the evaluation view alone, which a step takes twice (dropout makes them differ)
    cache_views: Annotated[int, Range(1, MOST_VIEWS)] | Literal[0, "auto"] = "auto"
    cache_precision: Literal["float16", "float32"] = "float16"
    cache_seed: WholeNumber = 0  # of the fixed views; runs with other seeds share them


@dataclass
class EmbeddingConfig:
    """The space in which images are compared and assigned, besides what the method makes of it."""

    # by the within-class covariance of labelled images, shrunk by this share; auto: chosen on labelled images
    whiten: Annotated[float, Range(above=0, most=1)] | Literal["none", "auto"] = "none"


@dataclass(frozen=True)
class Config:
    """All settings of a run, resolved and checked; written to `config.yaml`."""

    data: dict[str, Any]
    backbone: dict[str, Any]
    tuning: dict[str, Any]  # what trains in the backbone besides its last blocks
    organizer: dict[str, Any]
    method: dict[str, Any]
    embedding: dict[str, Any]
    assigner: dict[str, Any]  # its name, or "own", and its settings
    train: TrainConfig
    k: int | Literal["auto"] | None  # categories in total, known and new; in a run directory always a number

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def as_yaml(self) -> str:
        return yaml.safe_dump(self.as_dict(), sort_keys=False, allow_unicode=True)

    def outside_parts(self) -> dict[str, OutsidePart]:
        """Section → part that a plugin or another package brought."""
        parts = {}
        for section, registry in REGISTRIES.items():
            name = getattr(self, section)["name"]
            if (origin := registry.origin(name)) is not None:
                file = Path(origin)
                parts[section] = OutsidePart(name, origin, checksum(file) if file.is_file() else None)
        return parts


def resolve(*layers: Mapping[str, Any]) -> Config:
    """Merge the layers (later ones win), fill in defaults, and check every name and value.

    >>> resolve({"data": {"name": "creatures"}, "train": {"epochs": 5}}).train.epochs
    5
    """
    given = merge_layers(layers)
    data_name = name_of(given, "data", None)
    organizer_name = name_of(given, "organizer", "none")
    method_name = name_of(given, "method", "simgcd")
    assigner_name = name_of(given, "assigner", OWN)
    method = METHODS[method_name]
    backbone_name = given["backbone"].get("name", BUNDLED.get(data_name, AUTO))
    family = _family(str(backbone_name), given, organizer_name)
    train = {**method.train_defaults, **family.train, **given["train"]}
    organizer = {**(family.cpf if organizer_name == "cpf" else {}), **given["organizer"]}
    if not method.trains:
        train["epochs"] = 0  # a table gives all its rows the same number
    if train.get("epochs") == 0:
        train["cache_views"] = 0  # no step would read them
    k = coerce(given["k"], int | Literal["auto"] | None, "k")
    by_hand = [name for name in CORRECTED if name in given["data"]]
    taught: dict[str, Any] = {name: coerce(given["data"].pop(name), str, f"data.{name}") for name in by_hand}
    if MORE in given["data"]:  # no setting that a person makes: `newkinds update` does
        taught[MORE] = coerce(given["data"].pop(MORE), list[str], f"data.{MORE}")
    data = {"name": data_name, **section_of("data", DATASETS[data_name], given["data"]), **taught}
    if "root" in data and "path" in data:  # of a list: the variable is for data sets of ours
        data["root"] = None if data["root"] is None else str(user_path(data["root"]))
    elif "root" in data and (root := data_root(data["root"])) is not None:
        data["root"] = str(root)  # a run finds its images again from any folder, and without the variable
    if "labels" in data and data["labels"] is not None:
        data["labels"] = str(user_path(data["labels"]))
    backbone = {**method.backbone_defaults, "name": backbone_name, **given["backbone"]}
    if backbone_name == VECTORS:
        backbone = {"train_blocks": 0, **backbone}
    backbone = section_of("backbone", build_backbone, backbone)
    if backbone["weights"] is not None:
        backbone["weights"] = str(user_path(backbone["weights"]))
    settings = TrainConfig(**section_of("train", TrainConfig, train))
    if settings.start not in (None, NO_START):
        settings.start = str(user_path(settings.start))
    tuning_name = name_of(given, "tuning", method.tuning_defaults.get("name", LAST_BLOCKS))
    of_method = method.tuning_defaults if tuning_name == method.tuning_defaults.get("name") else {}
    tuning = {**{setting: value for setting, value in of_method.items() if setting != "name"}, **given["tuning"]}
    if not settings.epochs:  # nothing trains, and a tuning that has learnt nothing would only disturb
        tuning_name, tuning = LAST_BLOCKS, {}
    if data_name == READY_MADE or backbone_name == VECTORS:
        _require_nothing_of_pixels(data_name, backbone, organizer_name, tuning_name)
    return Config(
        data=data,
        backbone=backbone,
        tuning={"name": tuning_name, **section_of_chosen("tuning", TUNINGS.__getitem__, tuning_name, tuning)},
        organizer={
            "name": organizer_name,
            **section_of_chosen("organizer", ORGANIZERS.__getitem__, organizer_name, organizer),
        },
        method={
            "name": method_name,
            **section_of_chosen("method", lambda name: METHODS[name].Config, method_name, given["method"]),
        },
        embedding=section_of("embedding", EmbeddingConfig, given["embedding"]),
        assigner={"name": assigner_name, **_assigner_settings(assigner_name, given["assigner"])},
        train=settings,
        k=k,
    )


def _family(backbone: str, given: Mapping[str, Any], organizer: str) -> Family:
    """Whose defaults hold. If nothing is left to these, as in a run's own settings, no weight file is looked into."""
    said = {**given["organizer"], **given["organizer"].get("cpf", {})}
    if given["train"].keys() >= TRAIN_DEFAULTS and (organizer != "cpf" or said.keys() >= CPF_DEFAULTS):
        return family_of(backbone, None, "none")
    choice = coerce(given["backbone"].get("family", "auto"), FamilyChoice, "backbone.family")
    weights = given["backbone"].get("weights")
    return family_of(backbone, None if weights is None else user_path(str(weights)), choice)


def _require_nothing_of_pixels(data: str, backbone: Mapping[str, Any], organizer: str, tuning: str) -> None:
    """Refuse what works on images only, if the data are ready-made vectors."""
    have = "ready-made vectors have no"
    if data == READY_MADE and (backbone["name"] != VECTORS or backbone["weights"] or backbone["image_size"]):
        raise NewkindsError("ready-made vectors need no backbone: leave out --backbone, --weights and backbone.…")
    if ORGANIZERS[organizer].reads_patches:
        raise NewkindsError(f"{have} patches, which the organizer '{organizer}' reads: choose none or adapter.")
    if tuning != LAST_BLOCKS:
        raise NewkindsError(f"{have} backbone in which the tuning '{tuning}' could train: choose another method.")


def _assigner_settings(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    if name != OWN:
        if ASSIGNERS[name].learnt:
            raise NewkindsError(
                f"'{name}' is learnt by a method and cannot take the place of another assigner: choose --assigner own."
            )
        return section_of_chosen("assigner", ASSIGNERS.__getitem__, name, given)
    if plain := [setting for setting, value in given.items() if not isinstance(value, Mapping)]:
        raise NewkindsError(f"assigner.{plain[0]} belongs to an assigner that is not chosen: name one by --assigner.")
    return {}
