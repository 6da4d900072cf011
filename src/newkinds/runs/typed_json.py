"""Values from JSON as the types that they ought to have.

A file may be damaged, or crafted by a stranger: each value is held to the type of its field, and what does not fit is
named. What a file says besides is ignored."""

import math
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints


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
    if wanted is float and isinstance(content, (int, float)) and type(content) is not bool and _is_finite(content):
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
