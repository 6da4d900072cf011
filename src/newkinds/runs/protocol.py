"""What is shown with every number: data, split, metric, selection rule, weights, seed, versions, machine, date."""

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from .._version import __version__
from ..assigners import ASSIGNERS
from ..console import warn
from ..data.corrections import SETTINGS as CORRECTED
from ..data.facts import COLUMNS as FACTS
from ..data.more import SETTING as MORE
from ..data.splits import split_checksum
from ..data.table import Table
from ..encoders.backbones import VECTORS, weights_file
from ..errors import NewkindsError
from ..files import checksum
from ..methods import METHODS
from ..settings import settings_of
from .code import code_after_assigning, code_of, describe_code, describe_difference
from .config import LAST_BLOCKS, NO_START, OWN, Config, TrainConfig
from .directory import IMAGES, K_AUTO
from .records import Protocol, Tuned
from .run import Run
from .seen_images import copies_left_out, earlier_images

PACKAGES = ("torch", "timm", "scikit-learn", "numpy")
METRIC = "clustering accuracy, one Hungarian match over all images of the evaluated set (v2)"
SELECTION = "last epoch; nothing is chosen by test labels"


def record_protocol(
    run: Run, config: Config, table: Table, parts: Mapping[str, nn.Module], trains: Sequence[str], device: torch.device
) -> None:
    """Write down, when training begins, what cannot be seen from the settings later.

    `parts` are the model's, `trains` says which of their parameters train, and how fast.
    A resumed run must have the images and weights that it started with.
    """
    if run.path("protocol.json").is_file():
        record = run.protocol()
        require_same_images(run, table)
        if not run.model_file.is_file() and record.weights != _weights(config):
            raise NewkindsError(
                f"the backbone's weight file changed since {run.folder} was started (it was {record.weights}): "
                "restore it or choose another --out."
            )
        if not run.model_file.is_file() and record.started_from != _started_from(config):
            raise NewkindsError(
                f"the run {config.train.start}, from which {run.folder} starts, changed since: restore it or choose "
                "another --out."
            )
        _note_other_code(run, config, record)
        return
    _write_images(run, table)
    Protocol(
        **_of_table(table),
        parameters={name: sum(p.numel() for p in m.parameters()) for name, m in parts.items()},
        trains=list(trains),
        weights=_weights(config),
        started_from=_started_from(config),
        outside=config.outside_parts(),
        code=code_of(config),
        **_here_and_now(device),
    ).write(run)


def _note_other_code(run: Run, config: Config, record: Protocol) -> None:
    """Say if the code is not what a run was started with; if it trains on with it, that is recorded."""
    if record.outside != config.outside_parts():
        warn(f"plugins or packages changed since {run.folder} was started ({_outside(record) or 'without any'}).")
    differing = describe_difference(record, config)
    if differing and not run.model_file.is_file():
        warn(f"{run.folder} was started with other code ({differing}): it goes on, and tables will keep it apart.")
        replace(record, code=replace(code_of(config), changed=True)).write(run)


def record_refined(run: Run, config: Config, table: Table, weights: Run, device: torch.device) -> None:
    """The protocol of a run whose images people corrected, and which has the weights of another one.

    These may have been trained on from the run that it refines; else no other file is read.
    """
    _write_images(run, table)
    refines = str(config.data["refines"])
    trained = {} if str(weights.folder.resolve()) == refines else {"started_from": _started_from(config)}
    code = {"outside": config.outside_parts(), "code": code_of(config)}
    own = {**_of_table(table), **trained, **code, **_here_and_now(device)}
    replace(weights.protocol(), **own).write(run)


def record_grown(run: Run, table: Table, before: Run) -> None:
    """The protocol of a run whose images are others than `before`, by the same model."""
    _write_images(run, table)
    replace(before.protocol(), **_of_table(table)).write(run)


def record_assigned(run: Run, config: Config) -> None:
    """The protocol of a run that has been given another assigner."""
    record = run.protocol()
    code = code_after_assigning(record.code, config)
    replace(record, outside=config.outside_parts(), code=code).write(run)


def _write_images(run: Run, table: Table) -> None:
    if table.seen is not None:
        rows = [
            (path, seen.stamp, seen.content, *(seen.facts.cells() if seen.facts else [""] * len(FACTS)))
            for path, seen in zip(table.paths, table.seen, strict=True)
        ]
        groups = [()] * len(rows) if table.groups is None else [(group or "",) for group in table.groups]
        columns = ("path", "stamp", "content", *FACTS, *([] if table.groups is None else ["group"]))
        run.write_table(IMAGES, columns, [(*row, *group) for row, group in zip(rows, groups, strict=True)])


def _of_table(table: Table) -> dict[str, Any]:
    return {
        "images": len(table),
        "labelled": sum(label is not None for label in table.labels),
        "known_classes": len(table.known),
        "categories": table.categories,  # what the data set says, which the run may not have been told
        "split": split_checksum(table),
        "caveat": table.caveat,
        "class_list": table.class_list,
    }


def _here_and_now(device: torch.device) -> dict[str, Any]:
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    return {"versions": package_versions(), "device": describe_device(device), "date": date}


class ImageChanges(NamedTuple):
    """How the images of a data set differ from those that a run started with."""

    added: list[str]
    removed: list[str]
    changed: list[str]  # other pixels than before
    relabelled: bool  # the same images have other labels

    def sentence(self) -> str:
        """What changed, in words; empty if nothing did."""
        counts = {"added": self.added, "removed": self.removed, "replaced by others": self.changed}
        parts = [f"{_images(paths)} {what}{_first_of(paths)}" for what, paths in counts.items() if paths]
        if self.relabelled:
            parts.append("labels were changed")
        return ", ".join(parts)


def image_changes(run: Run, table: Table) -> ImageChanges:
    """What differs between a table and the images that a run started with."""
    earlier = earlier_images(run)
    here = set(table.paths)
    seen = zip(table.paths, table.contents or [], strict=False)  # no contents: none were requested
    changed = [path for path, content in seen if path in earlier and earlier[path].content != content]
    if not earlier:  # images that are not known by their pixels
        return ImageChanges([], [], [], run.protocol().split != split_checksum(table))
    copies = copies_left_out(run)
    added = [path for path in table.paths if path not in earlier and path not in copies]
    removed = [path for path in earlier if path not in here]
    record = Protocol.find(run)  # it is written after the list of images: a killed command may not have come to it
    other_labels = record is not None and record.split != split_checksum(table)
    return ImageChanges(added, removed, changed, other_labels and not added and not removed)


def require_same_images(run: Run, table: Table) -> None:
    """Refuse images, labels or pixels that are not those the run started with, and say which."""
    if differing := image_changes(run, table).sentence():
        raise NewkindsError(
            f"since {run.folder} was started, {differing}: restore them, or run newkinds discover again with all "
            "images as they are now (it keeps names and corrections), or choose another --out."
        )


def _images(paths: Sequence[str]) -> str:
    return "1 image was" if len(paths) == 1 else f"{len(paths)} images were"


def _first_of(paths: Sequence[str]) -> str:
    return f" ({', '.join(paths[:3])}{', …' if len(paths) > 3 else ''})" if paths else ""


def describe_protocol(run: Run, evaluated: str | None = None) -> list[tuple[str, str]]:
    """The protocol of a run as name and value, for tables, pages and cards; `evaluated`: which images were."""
    config, record = run.config(), run.protocol()
    train = config.train
    estimated = ", estimated from the backbone's features" if run.path(f"{K_AUTO}.json").is_file() else ""
    given = {
        key: value for key, value in config.data.items() if value not in (None, False) and key not in (*CORRECTED, MORE)
    }
    if config.data.get("known", "") is None:  # no labels were hidden
        given = {key: value for key, value in given.items() if key not in ("fraction", "split_seed")}
    said = ("epochs", "batch_size", "lr", "seed", "start", "device", "workers", "cache_views", "cache_precision")
    unsaid = {name: value for name, value in vars(train).items() if name not in said}
    others = set_otherwise({"name": "", **unsaid}, TrainConfig)
    how = f"{train.epochs} epochs, batch {train.batch_size}, lr {train.lr:g}, {_views(train)}"
    rows: list[tuple[str, str | None]] = [
        ("data", _named(given)),
        ("refined from", Path(config.data.get("refines", "")).name),
        ("images", f"{record.images:,}, of which {record.labelled:,} labelled"),
        ("categories", f"{record.known_classes} known of {config.k}{estimated}"),
        ("split", record.split),
        ("not as published", record.caveat),
        ("class list", record.class_list),
        ("evaluated", evaluated),
        ("metric", METRIC if evaluated else None),
        ("selection", SELECTION),
        ("method", set_otherwise(config.method, METHODS[config.method["name"]].Config)),
        *_replaced(run, config),
        ("tuning", "" if config.tuning["name"] == LAST_BLOCKS else _named(config.tuning)),
        ("organizer", _named(config.organizer)),
        ("backbone", _backbone(config.backbone)),
        ("weights", record.weights),
        ("started from", record.started_from),
        ("from outside", _outside(record)),
        ("code", describe_code(record.code)),
        ("training", f"{how}{others}" if train.epochs else "none"),
        ("tuned", None if (tuned := Tuned.find(run)) is None else tuned.sentence()),
        ("trains", "; ".join(record.trains)),
        ("seed", str(train.seed)),
        ("versions", record.versions),
        ("machine", record.device),
        ("date", record.date),
    ]
    return [(name, value) for name, value in rows if value]


def _backbone(settings: Mapping[str, Any]) -> str:
    if settings["name"] == VECTORS:
        return ""  # what there is instead is said of the weights
    size = f"{settings['image_size']} px, " if settings["image_size"] else ""
    norm = " and final norm" if settings["train_norm"] else ""
    return f"{settings['name']}, {size}last {settings['train_blocks']} block(s){norm} trained"


def _replaced(run: Run, config: Config) -> list[tuple[str, str]]:
    """Rows for whitening and for an assigner that is not the method's own, with what these chose."""
    found = run.about_model().get("found", {})
    whiten, name = config.embedding["whiten"], config.assigner["name"]
    said = {
        "embedding": "" if whiten == "none" else f"whitening {whiten}",
        "assigner": "" if name == OWN else set_otherwise(config.assigner, ASSIGNERS[name]),
    }
    return [(part, ", ".join(filter(None, [setting, found.get(part, "")]))) for part, setting in said.items()]


def set_otherwise(section: Mapping[str, Any], build: Callable[..., Any]) -> str:
    """A section's name, and those of its settings that are not the defaults, which the version of newkinds implies."""
    own = {name: parameter.default for name, parameter in settings_of(build).items()}
    return _named({name: value for name, value in section.items() if name == "name" or value != own[name]})


def _named(section: Mapping[str, Any]) -> str:
    return ", ".join(str(value) if key == "name" else f"{key} {value}" for key, value in section.items())


def _views(train: TrainConfig) -> str:
    if not train.cache_views:
        return "fresh views at every step"
    return f"{train.cache_views} fixed views per image, their tokens cached in {train.cache_precision}"


def _outside(record: Protocol) -> str:
    """The parts that a plugin or another package brought."""
    return "; ".join(
        f"{section} {part.name} from {part.origin}" + (f", sha256 {part.checksum}" if part.checksum else "")
        for section, part in record.outside.items()
    )


def package_versions() -> str:
    found = [f"Python {platform.python_version()}", f"newkinds {__version__}"]  # ours even if it is not installed
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def describe_device(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type.upper()} {platform.machine()}, {torch.get_num_threads()} threads"


def _weights(config: Config) -> str:
    if config.backbone["name"] == VECTORS:
        return f"none: ready-made vectors of {config.backbone['width']} numbers"
    file = weights_file(config.backbone["name"], config.backbone["weights"])
    return f"{config.backbone['name']}: {file.name}, sha256 {checksum(file)}"


def _started_from(config: Config) -> str | None:
    """The run whose weights training began with, and what its model was."""
    if config.train.start in (None, NO_START) or not config.train.epochs:
        return None
    start = Run(str(config.train.start))
    if start.folder.is_file():  # a checkpoint
        return f"{start.folder.name}, sha256 {checksum(start.folder)}"
    return f"{start.folder.name}: {start.model_file.name}, sha256 {checksum(start.model_file)}"
