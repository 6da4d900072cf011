"""What a contract is: something that every part of a kind promises, asked of one part at a time."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..assigners import ASSIGNERS
from ..checks import CHECKS
from ..cluster.count import COUNTERS
from ..console import keep_quiet, silence
from ..data import DATASETS
from ..discovery.export import EXPORTS
from ..encoders.organizers import ORGANIZERS
from ..encoders.tunings import TUNINGS
from ..errors import NewkindsError, place_outside, reason_of
from ..methods import METHODS
from ..registry import Registry
from ..training.watching import WATCHERS

ASKED: dict[str, Registry[Any]] = {
    registry.kind: registry
    for registry in (
        METHODS, ORGANIZERS, TUNINGS, ASSIGNERS, COUNTERS, DATASETS, CHECKS, EXPORTS, WATCHERS,
    )
}  # fmt: skip


class Broken(NewkindsError):
    """A part does not hold what parts of its kind promise; the text says how."""


class NotAsked(Exception):
    """A contract does not concern a part; the text says why."""


@dataclass(frozen=True)
class AskedPart:
    """A registered method, organizer, … of which something is asked."""

    kind: str  # as its registry calls it: "method", "data set"
    name: str
    folder: Path  # an empty one at first: contracts of one part share what they train there
    settings: Mapping[str, Any] = field(default_factory=dict)  # its own, where they are not the defaults

    @property
    def entry(self) -> Any:
        """The class or function."""
        return ASKED[self.kind][self.name]


@dataclass(frozen=True)
class Contract:
    """What parts of a kind promise."""

    says: str  # in a line
    keeper: str  # the method of the part that has to keep it, whose line is named where it is broken
    ask: Callable[[AskedPart], str | None]  # raises `Broken`, or returns a remark, if there is one


@dataclass(frozen=True)
class ContractResult:
    """What came out when a part was asked."""

    part: AskedPart
    contract: Contract
    outcome: Literal["held", "remark", "left out", "broken"]
    reason: str = ""


CONTRACTS: dict[str, list[Contract]] = {kind: [] for kind in ASKED}
Ask = Callable[..., str | None]


def contract(*kinds: str, keeper: str = "__init__") -> Callable[[Ask], Ask]:
    """Make a function a contract of some kinds of parts; the first line of its docstring says which."""

    def add(ask: Ask) -> Ask:
        says = (ask.__doc__ or "").strip().split("\n")[0].rstrip(".")
        for kind in kinds:
            CONTRACTS[kind].append(Contract(says, keeper, ask))
        return ask

    return add


def require(holds: bool, otherwise: str) -> None:
    """Go on only if something holds."""
    if not holds:
        raise Broken(otherwise)


def ask_all(part: AskedPart) -> list[ContractResult]:
    """What comes of each contract of a part; an error in one does not stop the others."""
    return [_ask(part, asked) for asked in CONTRACTS[part.kind]]


def _ask(part: AskedPart, asked: Contract) -> ContractResult:
    try:
        with keep_quiet(), silence():
            remark = asked.ask(part)
    except NotAsked as why:
        return ContractResult(part, asked, "left out", str(why))
    except Exception as error:
        reason = reason_of(error)
        if place_outside(error) is None and (place := place_of(part.entry, asked.keeper)):
            reason = f"{reason} ({place})"
        return ContractResult(part, asked, "broken", reason)
    return ContractResult(part, asked, "remark" if remark else "held", remark or "")


def place_of(entry: Any, keeper: str) -> str:
    """Where a part is defined, or the method of it that is meant; empty if there is no file.

    >>> place_of(METHODS["mine"], "loss")
    '/home/me/mine.py, line 12, in Mine.loss'
    """
    method = getattr(entry, keeper, None) if inspect.isclass(entry) else None
    is_own = getattr(method, "__module__", None) == entry.__module__  # else it is inherited from elsewhere
    meant = method if method is not None and is_own else entry
    try:
        file, (lines, first) = inspect.getsourcefile(meant), inspect.getsourcelines(meant)
    except (OSError, TypeError):
        return ""
    decorators = next((n for n, line in enumerate(lines) if line.lstrip().startswith(("def ", "class "))), 0)
    return f"{file}, line {first + decorators}, in {meant.__qualname__}"
