"""Checkpoints that the published code of SimGCD has saved: backbone and head, by the names that they have here."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..encoders.weights import load_weights, read_tensors, require_finite
from ..errors import NewkindsError
from .model import Model

PROTOTYPES = "method.classifier.prototypes"
# lengths and directions of a linear layer under weight normalisation: as older and newer releases of torch name them
NORMALISED = (
    ("last_layer.weight_g", "last_layer.weight_v"),
    ("last_layer.parametrizations.weight.original0", "last_layer.parametrizations.weight.original1"),
)


def take_simgcd(model: Model, file: Path) -> set[str]:
    """Put backbone and head of a checkpoint into a model; the names of the tensors that it has given."""
    state = head_of_simgcd(file)
    here = model.state_dict()
    for name, value in state.items():
        if name not in here:
            method = type(model.method).__name__
            raise NewkindsError(f"{file} has the head of SimGCD, which {method} has not: choose --method simgcd.")
        has, wants = tuple(value.shape), tuple(here[name].shape)
        if has != wants:
            hint = f": give --k {has[0]}" if name == PROTOTYPES and has[1:] == wants[1:] else ""
            raise NewkindsError(f"{name} is {has} in {file}, and {wants} in this model{hint}.")
    require_finite(state, here, file)
    network = model.encoder.backbone.network
    load_weights(network, file)
    model.load_state_dict(state, strict=False)
    return {*state, *(f"encoder.backbone.network.{name}" for name in network.state_dict())}


def head_of_simgcd(file: Path) -> dict[str, Tensor]:
    """The projection and the prototypes (K, D) of a checkpoint.

    Its head is a perceptron `mlp` and, under weight normalisation whose lengths stay at one, a linear layer
    `last_layer`, whose directions are the prototypes.
    """
    tensors = read_tensors(file)
    found = [(name, *names) for names in NORMALISED for name in tensors if name.endswith(names[1])]
    if not found:
        raise NewkindsError(
            f"{file} has no head of SimGCD (last_layer.weight_v), so nothing starts from it: for its backbone alone, "
            "pass it with --weights FILE."
        )
    name, length, direction = found[0]
    prefix = name.removesuffix(direction)
    lengths = tensors.get(f"{prefix}{length}")
    if lengths is not None and not torch.allclose(lengths, torch.ones_like(lengths)):
        raise NewkindsError(f"the prototypes in {file} have other lengths than 1: it is not a checkpoint of SimGCD.")
    return {**_projection(tensors, f"{prefix}mlp."), PROTOTYPES: tensors[name]}


def _projection(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        f"method.projection.{name.removeprefix(prefix)}": value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
