"""The runs of a grid, data sets × methods × organizers × seeds: how each is called, and which settings make it so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

from ..assigners import ASSIGNERS
from ..encoders.organizers import ORGANIZERS
from ..encoders.organizers.cpf import Readout
from ..encoders.organizers.patches import ClassToken
from ..methods import METHODS

Settings = Sequence[Mapping[str, Any]]
READOUTS = get_args(Readout)
SIZES = range(4, 25, 4)  # primitives and heads, as in the paper's figure
FROZEN: dict[str, dict[str, Any]] = {"train": {"freeze_organizer": True}}  # random and never trained


@dataclass(frozen=True)
class Cell:
    """One run of a grid."""

    data: str  # a name for it; which images these are is in its settings
    method: str
    organizer: str  # its name, or that of one of VARIANTS
    seed: int = 0

    @property
    def row(self) -> "Cell":
        """What the runs of one row have in common: all but the seed."""
        return replace(self, seed=0)

    @property
    def host(self) -> "Cell":
        """The row that this one is compared with; a baseline has none but itself."""
        return self.row if self.is_baseline else replace(self, seed=0, organizer="none")

    @property
    def variant(self) -> dict[str, dict[str, Any]]:
        return VARIANTS.get(self.organizer, {"organizer": {"name": self.organizer}})

    @property
    def is_quoted(self) -> bool:
        """Whether there is no such method here, so that it cannot be run: only what others reported is known of it."""
        return self.method not in METHODS

    @property
    def is_baseline(self) -> bool:
        """Whether an assigner alone finds the categories in features of the backbone."""
        return not (self.is_quoted or METHODS[self.method].trains) and self.variant["organizer"]["name"] == "none"

    @property
    def is_assigned(self) -> bool:
        """Whether another assigner finds the categories in what its host has learnt."""
        return "assigner" in self.variant and not self.is_baseline

    @property
    def first_stage(self) -> "Cell | None":
        """The run that a second stage starts from: with the same organizer and seed; assigners change no training."""
        first = None if self.is_quoted else METHODS[self.method].starts_from
        return replace(self, method=first, organizer="none" if self.is_assigned else self.organizer) if first else None

    @property
    def before(self) -> "Cell | None":
        """The run that must be finished before this one."""
        return replace(self, organizer="none") if self.is_assigned else self.first_stage

    @property
    def title(self) -> str:
        """`SimGCD`, `SimGCD + adapter`, `SimGCD + CPF`, `SimGCD + CPF without prior`, `frozen + kmeans whitened`; of
        a class that says `title = "My Method"`, that."""
        plugged = self.plugged_title
        return f"{self.method_title} + {plugged}" if plugged else self.method_title

    @property
    def method_title(self) -> str:
        method = None if self.is_quoted else METHODS[self.method]
        return own_title(method) or (method.__name__ if method and method.trains else self.method)

    @property
    def plugged_title(self) -> str:
        """Of what is plugged into the method; empty if nothing is."""
        if self.organizer in ORGANIZERS and (own := own_title(ORGANIZERS[self.organizer])):
            return own
        name, *variant = self.organizer.split("-")
        if name not in ORGANIZERS and self.organizer not in VARIANTS:  # an organizer of others whose name has a dash
            name, variant = self.organizer, []
        if name == "none":
            return ""
        return " ".join([name.upper() if name == "cpf" else name, *variant])

    def folder(self, out: Path) -> Path:
        return out / f"{self.data}-{self.method}-{self.organizer}-seed{self.seed}"

    def features_folder(self, out: Path) -> Path:
        """The run from which all baselines of a data set are made, so that its images are embedded once."""
        return out / f"{self.data}-{self.method}"

    def layers(self, out: Path | None = None) -> Settings:
        """The settings that make it this cell and no other; among runs in `out`, also where a second stage starts."""
        train: dict[str, Any] = {"seed": self.seed}
        if out is not None and self.first_stage is not None:
            train["start"] = str(self.first_stage.folder(out))
        return [{"method": {"name": self.method}, "train": train}, self.variant]

    def __str__(self) -> str:
        return f"{self.title} on {self.data}, seed {self.seed}"


def own_title(part: type | None) -> str:
    """The title that a class itself says, not one that it is built on; empty if it says none."""
    return " ".join(str(vars(part).get("title", "")).split()) if part is not None else ""


VARIANTS: dict[str, dict[str, dict[str, Any]]] = {  # organizers with settings that have their own rows
    "cpf-without-alpha": {"organizer": {"name": "cpf", "learn_alpha": False}},
    "cpf-without-prior": {"organizer": {"name": "cpf", "use_prior": False}},
    "cpf-without-data": {"organizer": {"name": "cpf", "use_data": False}},
    **{f"cpf-{readout}": {"organizer": {"name": "cpf", "readout": readout}} for readout in READOUTS},
    "cpf-parts-trained": {"organizer": {"name": "cpf-parts", "train_field": True}},
    "cpf-random-parts": {"organizer": {"name": "cpf-parts", "start": "random"}},
    "cpf-attention-without-codebook": {"organizer": {"name": "cpf-attention", "codebook": False}},
    "cpf-attention-without-field": {"organizer": {"name": "cpf-attention", "field": False}},
    "cpf-full-phi": {"organizer": {"name": "cpf", "phi_rank": None}},
    **{
        f"cpf-M{primitives}-H{heads}": {"organizer": {"name": "cpf", "primitives": primitives, "heads": heads}}
        for primitives, heads in product(SIZES, SIZES)
    },
    "coge-release": {"organizer": {"name": "coge", "variant": "release"}},
    "coge-release-frozen": {"organizer": {"name": "coge", "variant": "release"}, **FROZEN},  # so it is released
    "parts-with-class": {"organizer": {"name": "parts", "keep_class": True}},
}
for _name in (name for name in ORGANIZERS if not issubclass(ORGANIZERS[name], ClassToken)):  # those with parameters
    VARIANTS[f"{_name}-frozen"] = {"organizer": {"name": _name}, **FROZEN}
for _name in (name for name in ASSIGNERS if ASSIGNERS[name].begins):  # no organizer, another assigner
    VARIANTS[_name] = {"organizer": {"name": "none"}, "assigner": {"name": _name}}
    VARIANTS[f"{_name}-whitened"] = {**VARIANTS[_name], "embedding": {"whiten": "auto"}}


def with_what_comes_before(cells: Sequence[Cell]) -> list[Cell]:
    """The cells, and before each the runs that it starts from, whether these are among them or not."""
    ordered: dict[Cell, None] = {}
    for cell in cells:
        line = [cell]
        while (before := line[0].before) is not None:
            line.insert(0, before)
        ordered |= dict.fromkeys(line)
    return list(ordered)
