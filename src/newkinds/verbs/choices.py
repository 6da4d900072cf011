"""What a user may choose for a run, and the layers of settings this becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from ..data import source_of
from ..errors import NewkindsError, nearest
from ..settings import find_recipe, read_recipe


class Choices(TypedDict, total=False):
    """What `train` and `discover` may be told beside data and out; each has the command-line option's name."""

    k: int | Literal["auto"] | None  # categories in all, known and new
    method: str | None
    organizer: str | None
    backbone: str | None
    weights: str | Path | None  # weight file of the backbone
    data_root: str | Path | None  # where the data sets are, if not in $NEWKINDS_DATA
    recipe: str | Path | None  # YAML file with settings, or the name of one that comes with newkinds
    settings: Mapping[str, Any] | Sequence[Mapping[str, Any]]  # {"train": {"epochs": 20}}, later ones win


def layers_of(data: str | Path | None, choices: Choices) -> list[Mapping[str, Any]]:
    """What the user chose as layers of settings, later ones win."""
    for argument in choices:  # the types are not there when a program runs
        if argument not in Choices.__annotations__:
            raise NewkindsError(
                f"there is no argument '{argument}'.{nearest(argument, Choices.__annotations__)} "
                f"There are: {', '.join(Choices.__annotations__)}."
            )
    layers: list[Mapping[str, Any]] = []
    if (recipe := choices.get("recipe")) is not None:
        layers.append(read_recipe(find_recipe(recipe)))
    if data is not None:
        layers.append({"data": source_of(data)})
    if (root := choices.get("data_root")) is not None:
        layers.append({"data": {"root": str(root)}})
    for section in ("method", "organizer", "backbone"):
        if (name := choices.get(section)) is not None:
            layers.append({section: {"name": name}})
    if (weights := choices.get("weights")) is not None:
        layers.append({"backbone": {"weights": str(weights)}})
    if (k := choices.get("k")) is not None:
        layers.append({"k": k})
    settings = choices.get("settings", {})
    return [*layers, settings] if isinstance(settings, Mapping) else [*layers, *settings]
