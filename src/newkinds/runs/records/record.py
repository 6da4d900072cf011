"""What every record has in common: a frozen dataclass that is read from one JSON file of a run, and written to it.

A file may be damaged, or crafted by a stranger: each value is held to the type of its field, and what does not fit is
named. What a file says besides is ignored."""

import math
import types
from dataclasses import MISSING, asdict, fields, is_dataclass
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from typing_extensions import Self

from ...errors import NewkindsError
from ..directory import RunDirectory


class Record:
    """One file of a run.

    >>> PlanRecord.read(RunDirectory("runs/photos")).chosen
    """

    FILE: ClassVar[str]
    ADVICE: ClassVar[str] = "delete it, and the page is made without it"  # what to do if it is damaged

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        """What the run's file says; an error if it is missing or damaged."""
        content = run.read_json(cls.FILE)
        try:
            return cls.of_json(content)
        except Unfit as error:
            raise NewkindsError(f"{run.path(cls.FILE)} is damaged ({error}): {cls.ADVICE}.") from None

    @classmethod
    def of_json(cls, content: Any) -> Self:
        """What `as_json` gave, or what was read; Unfit if it is anything else."""
        return value_of(content, cls, "")

    @classmethod
    def find(cls, run: RunDirectory) -> Self | None:
        """Like `read`, but None if there is no such file."""
        return cls.read(run) if run.path(cls.FILE).is_file() else None

    def as_json(self) -> dict[str, Any]:
        """What is written."""
        assert is_dataclass(self)
        return asdict(self)

    def write(self, run: RunDirectory) -> None:
        run.write_json(self.FILE, self.as_json())


class Unfit(ValueError):
    """A value that is not of the type that its field has."""


def value_of(content: Any, wanted: Any, where: str) -> Any:
    """A value from JSON as the annotated type; `where` it stands is said if it is of another one.

    >>> value_of([1, 2.5], list[float], "scores")
    [1.0, 2.5]
    """
    if wanted is Any:
        return content
    if is_dataclass(wanted) and isinstance(content, dict):
        return _dataclass_of(content, wanted, where)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        if content is None and type(None) in arguments:
            return None
        (wanted,) = [option for option in arguments if option is not type(None)]
        return value_of(content, wanted, where)
    if origin is list and isinstance(content, list):
        return [value_of(item, arguments[0], f"{where}[{place}]") for place, item in enumerate(content)]
    if origin is tuple and isinstance(content, list) and len(content) == len(arguments):
        parts = zip(content, arguments, strict=True)
        return tuple(value_of(item, part, f"{where}[{place}]") for place, (item, part) in enumerate(parts))
    if origin is dict and isinstance(content, dict):
        return {key: value_of(item, arguments[1], f"{where}.{key}"[:80]) for key, item in content.items()}
    if wanted is float and type(content) in (int, float) and _is_finite(content):
        return float(content)
    if wanted in (str, int, bool) and type(content) is wanted:  # True is an int, too
        return content
    raise Unfit(f"{where or 'all of it'} is not {_in_words(wanted)}")


def _dataclass_of(content: dict[str, Any], wanted: Any, where: str) -> Any:
    kinds = get_type_hints(wanted)
    values = {}
    for field in fields(wanted):
        name = f"{where}.{field.name}".lstrip(".")
        if field.name in content:
            values[field.name] = value_of(content[field.name], kinds[field.name], name)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise Unfit(f"it does not say '{name}'")
    return wanted(**values)


def _is_finite(number: int | float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _in_words(wanted: Any) -> str:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
    if get_origin(wanted) in (list, tuple):
        return "a list as expected"
    return words.get(wanted, "an object {…}")
