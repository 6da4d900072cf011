"""A file that says all of a table: `newkinds bench --config sweep.yaml`.

Its keys are the arguments of `bench` and the options of a run; `settings` are as in a recipe, `per_method` those of the
rows of one method. What is said on the command line wins."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import NewkindsError, nearest
from ..settings import coerce, merge_layers, read_recipe
from ..verbs.choices import Choices, layers_of, options

LISTS: dict[str, Any] = {
    **dict.fromkeys(("data", "methods", "organizers", "baselines", "recipe", "plugins", "log"), list[str]),
    "seeds": list[int],
}
VALUES: dict[str, Any] = {
    "table": str, "out": str, "against": str, "style": str, "jobs": int, "wait": bool,
    **dict.fromkeys(("settings", "per_method", "tune"), dict),
}  # fmt: skip


def read_sweep(file: str | Path) -> dict[str, Any]:
    """The arguments of `bench` that a file holds, checked; `plugins` and `log` are the names of files and watchers.

    >>> read_sweep("sweep.yaml")["methods"]
    ['simgcd', 'cms']
    """
    content = read_recipe(file)
    known = {**dict.fromkeys(options()), **LISTS, **VALUES}
    sweep: dict[str, Any] = {}
    for name, value in content.items():
        if name not in known:
            hint = nearest(str(name), known) or f" There are: {', '.join(sorted(known))}."
            raise NewkindsError(f"{file}: a table has no '{name}'.{hint}")
        try:
            sweep[name] = _checked(name, value)
        except NewkindsError as error:
            raise NewkindsError(f"{file}: {error}") from None
    return sweep


def _checked(name: str, value: Any) -> Any:
    """A value of the file as it must be."""
    if name in LISTS:
        listed = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        listed = [listed] if isinstance(listed, int) else listed
        return coerce(listed, LISTS[name], name)
    if VALUES.get(name) is dict:
        if not isinstance(value, Mapping):
            raise NewkindsError(f"'{name}' must hold settings by name, not {value!r}.")
        if name != "tune":
            for layer in [value] if name == "settings" else value.values():
                if not isinstance(layer, Mapping):
                    raise NewkindsError(f"'{name}' must hold the settings of methods by name, not {layer!r}.")
                merge_layers([layer])
        return value
    if isinstance(value, (Mapping, Sequence)) and not isinstance(value, str):
        raise NewkindsError(f"'{name}' must be a single value, not {value!r}.")
    return coerce(value, VALUES[name], name) if name in VALUES else value


def over_sweep(sweep: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `bench`: those of a file, and over them those that were given besides.

    Recipes and settings of both are taken, those that were given last; they also win over the file's `per_method`.
    """
    both: dict[str, Any] = {**sweep, **given}
    both["tune"] = {**sweep.get("tune", {}), **given.get("tune", {})}
    # an option such as --epochs must win over the same thing among the settings of the file
    later = layers_of(None, _choices(given))
    for name in [name for name in both if name in options() and name != "device"]:
        del both[name]
    both["settings"] = [*layers_of(None, _choices(sweep)), *later]
    per_method = sweep.get("per_method", {})
    both["per_method"] = {method: _merged([settings, *later]) for method, settings in per_method.items()}
    return both


def _choices(arguments: Mapping[str, Any]) -> Choices:
    chosen: Any = {name: value for name, value in arguments.items() if name in options()}
    return chosen


def _merged(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several layers as one."""
    merged = merge_layers(layers)
    return {section: values for section, values in merged.items() if values not in ({}, None)}
