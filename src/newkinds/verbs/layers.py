"""From layers of named settings to all settings: the backbone is chosen, and what a run began with stays."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ..console import keep_quiet
from ..data import load_table
from ..data.more import SETTING as MORE
from ..data.vectors import NAME as READY_MADE
from ..data.vectors import width_of_vectors
from ..encoders.auto import AUTO, choose_backbone, warn_of_tiny
from ..runs.config import DRAWN, Config, resolve
from ..runs.run import Run
from ..training.device import choose_device

Layers = Sequence[Mapping[str, Any]]


def resolve_layers(layers: Layers, run: Run | None = None) -> Config:
    """The settings that the layers give, with a backbone that was chosen; a run that has begun stays as it is."""
    config = resolve(*layers)
    begun = run is not None and run.path("config.yaml").is_file()
    if config.backbone["name"] == AUTO:
        name = run.config().backbone["name"] if run is not None and begun else None
        if name is None:
            name = _choose_backbone(config)
        others = [drop_setting(layer, "backbone", "name", AUTO) for layer in layers]
        config = resolve({"backbone": {"name": name}}, *others)
    if config.data["name"] == READY_MADE:
        config = resolve({"backbone": {"width": width_of_vectors(config.data["path"])}}, *layers)
    warn_of_tiny(config.backbone["name"], config.data["name"] not in DRAWN)
    if run is not None and begun and (more := run.config().data.get(MORE)):  # images that came later from elsewhere
        config = replace(config, data={**config.data, MORE: more})
    if run is not None and begun and config.train.cache_views == "auto":
        config = set_cache_views(config, run.config().train.cache_views)
    return config


def _choose_backbone(config: Config) -> str:
    """Its name. Nobody is asked to download one for an empty folder."""

    def require_data() -> None:
        with keep_quiet():  # what is to be said about them is said when they are taken
            load_table(config.data)

    photographs, device = config.data["name"] not in DRAWN, choose_device(config.train.device)
    return choose_backbone(config.backbone["weights"], photographs, device, require_data)


def drop_setting(layer: Mapping[str, Any], section: str, setting: str, value: object) -> Mapping[str, Any]:
    """The layer without a setting, if that has this value."""
    values = layer.get(section)
    if not isinstance(values, Mapping) or values.get(setting) != value:
        return layer
    return {**layer, section: {name: other for name, other in values.items() if name != setting}}


def set_cache_views(config: Config, views: int | Literal["auto"]) -> Config:
    """How many views of each image are cached, in otherwise equal settings."""
    return replace(config, train=replace(config.train, cache_views=views))
