"""The settings of a row of a table: its recipe, what the table wants otherwise, and what the user says over both."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import NewkindsError, nearest
from ..methods import METHODS
from ..methods.base import Extra
from ..runs.config import resolve
from ..settings import find_recipe, flat, read_recipe, recipe_names
from ..verbs.choices import Choices, layers_of
from .cells import Cell
from .paper import HOSTS, PaperTable

CELLS_SAY = ("data.name", "data.path", "method.name", "organizer.name", "train.seed", "train.start")
COMPUTING = ("precision", "device", "workers")  # settings of training that also say how features are computed
Sources = Mapping[str, Mapping[str, Any]]  # what a cell calls its data → the settings section `data`


@dataclass(frozen=True)
class RowSettings:
    """The layers of settings of each cell of a table, but for those that make it that cell."""

    table: PaperTable
    sources: Sources
    choices: Choices  # for all rows
    per_method: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # method → settings of its rows alone

    def __call__(self, cell: Cell) -> list[Mapping[str, Any]]:
        """Later ones win; baselines take of these what they need."""
        layers = [
            self.recipe(cell),
            {"data": self.sources[cell.data]},
            *self.table.settings(cell),
            {"method": {extra.setting: extra.instead for extra in self.missing_extras(cell)}},
            *layers_of(None, self.choices),
            self.per_method.get(cell.method, {}),
        ]
        return [*map(_of_frozen_features, layers)] if cell.is_baseline else layers

    def recipe(self, cell: Cell) -> dict[str, Any]:
        """The bundled recipe of the cell, or nothing if there is none."""
        name = f"{HOSTS[0] if cell.is_baseline else cell.method}/{cell.data}"
        published = name in recipe_names() and "path" not in self.sources[cell.data]
        return read_recipe(find_recipe(name)) if published else {}

    def missing_extras(self, cell: Cell) -> list[Extra]:
        """What its recipe wants of packages that are not installed, and for which there is something else."""
        wanted = {} if cell.is_baseline else self.recipe(cell).get("method", {})
        extras = METHODS[cell.method].extras
        return [extra for extra in extras if wanted.get(extra.setting) == extra.value and not extra.is_installed]

    def require_sound(self) -> None:
        """Refuse settings that each cell has for itself, and those of methods that there are not."""
        for name, layer in self.per_method.items():
            if name not in METHODS:
                raise NewkindsError(f"per_method: there is no method '{name}'.{nearest(name, METHODS)}")
            try:
                for source in self.sources.values():
                    resolve({"data": source, "method": {"name": name}}, layer)
            except NewkindsError as error:
                raise NewkindsError(f"per_method, {name}: {error}") from None
        for layer in (*layers_of(None, self.choices), *self.per_method.values()):
            require_free(flat(layer))

    def unused(self, methods: Collection[str]) -> list[str]:
        """Methods that are not in the table, although there are settings for them alone."""
        waiting = [name for layer in layers_of(None, self.choices) for name in _parts(layer.get("method", {}))]
        return [name for name in dict.fromkeys([*self.per_method, *waiting]) if name not in methods]


def require_free(names: Collection[str]) -> None:
    """Refuse settings that each cell of a table has for itself."""
    for name in CELLS_SAY:
        if name in names:
            choose = "leave it out, and choose methods, organizers, data sets and seeds of the table"
            raise NewkindsError(f"each cell has its own {name}: {choose}.")


def _parts(section: Any) -> Sequence[str]:
    """The names under which settings of a section wait."""
    values = section if isinstance(section, Mapping) else {}
    return [name for name, value in values.items() if isinstance(value, Mapping)]


def _of_frozen_features(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that features depend on if nothing is trained."""
    kept = {section: values for section, values in settings.items() if section in ("data", "k")}
    backbone = {name: value for name, value in settings.get("backbone", {}).items() if name != "train_blocks"}
    train = {name: value for name, value in settings.get("train", {}).items() if name in COMPUTING}
    return {**kept, "backbone": backbone, "train": train}
