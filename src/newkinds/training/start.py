"""Training that begins with the weights of a finished run: the first of two stages, or any run on the same classes."""

import json
from collections.abc import Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from ..console import say
from ..errors import NewkindsError
from ..methods import METHODS
from ..runs.config import NO_START, Config
from ..runs.run import Run
from .model import REPLACED, Model
from .published import take_simgcd


def require_first_stage(config: Config) -> None:
    """Refuse a second stage that does not say what it starts from."""
    method = config.method["name"]
    first = METHODS[method].starts_from
    if first is not None and config.train.epochs and config.train.start is None:
        raise NewkindsError(
            f"{method} is a second stage, which starts from a run of {first}: train that first (the same command with "
            f"--method {first} and another --out FIRST), then add --start FIRST. --start {NO_START} begins with the "
            "backbone's own weights instead."
        )


def start_from(model: Model, config: Config) -> None:
    """Put the weights of the run `train.start` into a model: those that have a place of the same name and shape."""
    if config.train.start in (None, NO_START) or not config.train.epochs:
        return
    if (file := Path(str(config.train.start))).is_file():
        taken = take_checkpoint(model, file)
        model.begins_organized = any(name.startswith("encoder.organizer.") for name in taken)
        say(f"starting from {file}: {len(taken)} tensors")
        return
    run = Run(file)
    before = run.config()
    if before.backbone["name"] != config.backbone["name"]:
        raise NewkindsError(
            f"{run.folder} was trained with the backbone {before.backbone['name']}, not {config.backbone['name']}: "
            "start from a run with the same one."
        )
    about = run.about_model()
    if not about:
        raise NewkindsError(f"{run.folder} is not finished: finish it first (rerun its command), then start from it.")
    if list(about["known"]) != model.known:
        raise NewkindsError(f"{run.folder} knows other classes: start from a run on the same labelled images.")
    is_first_stage = before.method["name"] == model.method.starts_from
    taken = take_weights(model, run, leave=model.method.starts_afresh if is_first_stage else ())
    model.begins_organized = any(name.startswith("encoder.organizer.") for name in taken)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    afresh = sorted({_part(name) for name in trained - taken})
    said = f"; without a start there: {', '.join(afresh)}" if afresh else ""
    say(f"starting from {run.folder}: {len(trained & taken)} of {len(trained)} trained tensors{said}")


def take_checkpoint(model: Model, file: Path) -> set[str]:
    """Put the weights of a file into a model: a checkpoint of a run, or one that SimGCD's code has saved; which."""
    if file.suffix != ".safetensors":
        return take_simgcd(model, file)
    run = Run(file.parent)
    try:
        with safe_open(run.verified(file.name), framework="pt") as opened:
            known = list(json.loads((opened.metadata() or {})["newkinds"])["known"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        raise NewkindsError(f"{file} is damaged, or no checkpoint of a run of newkinds.") from None
    if known != model.known:
        raise NewkindsError(f"{file} knows other classes: start from a run on the same labelled images.")
    return take_weights(model, run, file=file.name)


def take_weights(model: Model, run: Run, leave: Sequence[str] = (), file: str = "model.safetensors") -> set[str]:
    """Put the weights of a `file` of a run into a model, those that have a place of the same name and shape; which.

    What is found after training is not taken, nor are the parts of the method that are named in `leave`.
    """
    left = (*REPLACED, *(f"method.{part}." for part in leave))
    here = model.state_dict()
    taken = {
        name: value
        for name, value in load_file(run.verified(file)).items()
        if name in here and here[name].shape == value.shape and not name.startswith(left)
    }
    model.load_state_dict(taken, strict=False)
    return set(taken)


def _part(name: str) -> str:
    """Of the model, to which a tensor belongs: `method.classifier`, `encoder.backbone.tuning`."""
    return ".".join(name.split(".")[: 3 if name.startswith("encoder.backbone.") else 2])
