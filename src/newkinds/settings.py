"""Settings: merging layers of them, and checking every name and value against the arguments of what a section builds.

`organizer: {cpf: {primitives: 16}}`, or `--set organizer.cpf.primitives=16`, waits until that organizer is chosen. So
do settings under the name of a method, a tuning or an assigner."""

import inspect
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from .errors import NewkindsError, nearest

RECIPES = Path(__file__).with_name("recipes")  # METHOD/DATASET.yaml
LARGEST_RECIPE = 1 << 20  # bytes
SECTIONS = ("data", "backbone", "tuning", "organizer", "method", "embedding", "assigner", "train")
WAITING = ("method", "organizer", "tuning", "assigner")  # sections of parts that are chosen by name


@dataclass(frozen=True)
class Range:
    """The values that a setting may take, declared with it: `lr: Annotated[float, Range(0)] = 0.1`."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf  # like `least`, without the bound itself
    below: float = math.inf  # like `most`, without the bound itself

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, (int, float)):
            return True  # null or "auto", which some settings take instead of a number
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        if math.isfinite(self.least) and math.isfinite(self.most):
            return f"from {self.least} to {self.most}"
        bounds = {"of at least": self.least, "of at most": self.most, "above": self.above, "below": self.below}
        return " and ".join(f"{words} {bound}" for words, bound in bounds.items() if math.isfinite(bound))


WholeNumber = Annotated[int, Range(0)]
AtLeastOne = Annotated[int, Range(1)]
NonNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(above=0)]
Share = Annotated[float, Range(0, 1)]


class PlainLoader(yaml.SafeLoader):
    """YAML without aliases (a few nested ones make a small file expand to more than any memory holds), without dates
    and without numbers that are not written in the usual way: 1:30 would mean 90, and 010 would mean 8."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            reason = f"aliases such as *{event.anchor} are not allowed: write the value out"
            raise yaml.composer.ComposerError(None, None, reason, event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.constructor.ConstructorError(None, None, f"'{twice[0]}' is said twice", node.start_mark)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        if node.tag.endswith("int"):
            is_plain = re.fullmatch(r"[+-]?(0|[1-9][0-9]*)", node.value) is not None
            return super().construct_yaml_int(node) if is_plain else node.value
        return node.value if ":" in node.value else super().construct_yaml_float(node)

    def construct_date(self, node: yaml.ScalarNode) -> str:
        return node.value


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_number)
PlainLoader.add_constructor("tag:yaml.org,2002:float", PlainLoader.construct_number)
PlainLoader.add_constructor("tag:yaml.org,2002:timestamp", PlainLoader.construct_date)


def recipe_names() -> list[str]:
    """The bundled recipes, one for each published method and data set: `simgcd/cub`."""
    return sorted(file.relative_to(RECIPES).with_suffix("").as_posix() for file in RECIPES.glob("*/*.yaml"))


def find_recipe(recipe: str | Path) -> Path:
    """The file of a bundled recipe by its name, else the file the user means.

    >>> find_recipe("simgcd/cub").name
    'cub.yaml'
    """
    if str(recipe) in recipe_names():
        return RECIPES / f"{recipe}.yaml"
    if not Path(recipe).exists():
        hint = nearest(str(recipe).removeprefix(f"{RECIPES.name}/").removesuffix(".yaml"), recipe_names())
        missing = f"there is no recipe '{recipe}', neither as a file nor among the bundled ones."
        raise NewkindsError(f"{missing}{hint} `newkinds list recipes` shows them.")
    return Path(recipe)


def read_recipe(path: str | Path) -> dict[str, Any]:
    """A recipe or config file: YAML with the sections data, backbone, organizer, method, train, and k."""
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST_RECIPE + 1)  # a device such as /dev/zero never ends
        if len(text) > LARGEST_RECIPE:
            raise NewkindsError(f"{path} has more than {LARGEST_RECIPE:,} bytes: it holds no settings. Name a recipe.")
        content = yaml.load(text.decode("utf-8"), PlainLoader)
    except OSError as error:
        raise NewkindsError(f"cannot read {path}: {error.strerror}.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or thousands of digits
        raise NewkindsError(f"{path} cannot be read as settings: {' '.join(str(error).split())}.") from None
    if not isinstance(content, dict | None):
        raise NewkindsError(f"{path} must hold settings like 'train: {{epochs: 20}}', not a {type(content).__name__}.")
    return content or {}


def parse_assignment(text: str) -> dict[str, Any]:
    """`"train.epochs=20"` → `{"train": {"epochs": 20}}`.

    >>> parse_assignment("organizer.primitives=16")
    {'organizer': {'primitives': 16}}
    >>> parse_assignment("method.simgcd.memax_weight=2")
    {'method': {'simgcd': {'memax_weight': 2}}}
    """
    key, equals, value = text.partition("=")
    parts = key.strip().split(".")
    is_known = {1: parts == ["k"], 2: True, 3: parts[0] in WAITING}.get(len(parts), False)
    if not equals or not all(parts) or not is_known:
        raise NewkindsError(
            f"--set {text[:80]}: write it as section.name=value, e.g. --set train.epochs=20; what is only for one "
            f"{', '.join(WAITING[:-1])} or {WAITING[-1]} with its name between: method.simgcd.memax_weight=2."
        )
    return nested(parts, parse_value(value))


def tuned_settings(texts: Sequence[str]) -> dict[str, list[Any]]:
    """What is to be tried for each setting.

    >>> tuned_settings(["train.lr=0.1,0.3,1"])
    {'train.lr': [0.1, 0.3, 1]}
    """
    wanted: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals:
            raise NewkindsError(f"--tune {text[:80]}: say which values to try, e.g. --tune train.lr=0.1,0.3,1.")
        wanted[name.strip()] = [parse_value(value.strip()) for value in values.split(",") if value.strip()]
    return wanted


def parse_value(text: str) -> Any:
    """A value as YAML reads it; what it cannot read is text."""
    try:
        return yaml.load(text, PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def nested(parts: Sequence[str], value: Any) -> dict[str, Any]:
    """`["train", "lr"], 0.1` → `{"train": {"lr": 0.1}}`."""
    for part in reversed(parts):
        value = {part: value}
    return value


def settings_of(build: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The settings a builder takes: its arguments that can be given by name and are not wired by the library."""
    # the fields of a dataclass may be inherited from one in another module, where their types have their names
    annotated = build.__init__ if inspect.isclass(build) and not is_dataclass(build) else build
    types_of = get_type_hints(annotated, include_extras=True)
    return {
        p.name: p.replace(annotation=types_of.get(p.name, p.annotation))
        for p in inspect.signature(build).parameters.values()
        if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and p.name not in ("self", "dim")
    }


def merge_layers(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One mapping of settings; later layers win."""
    merged: dict[str, Any] = {**{section: {} for section in SECTIONS}, "k": None}
    for key, value in (pair for layer in layers for pair in layer.items()):
        if key not in merged:
            hint = f"{nearest(str(key), merged)} There are: {', '.join(merged)}."
            raise NewkindsError(f"there is no section '{key}' among the settings.{hint}")
        if key == "k":
            merged["k"] = value
            continue
        if not isinstance(value, Mapping):
            raise NewkindsError(f"the section '{key}' must hold settings by name, not {_short(value)}.")
        # another organizer, method or data set does not inherit its predecessor's settings, but finds its own
        if "name" in value and value["name"] != merged[key].get("name", value["name"]) and key != "backbone":
            merged[key] = {name: waiting for name, waiting in merged[key].items() if _waits(waiting)}
        for name, setting in value.items():
            before = merged[key].get(name)
            if not _waits(setting):
                _forget_waiting(merged[key], name, of_part=value.get("name", merged[key].get("name")))
            merged[key][name] = {**before, **setting} if _waits(before) and _waits(setting) else setting
    return merged


def forgotten(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Settings of earlier layers that the last one drops, as it names another method, organizer … than they are of.

    >>> forgotten([{"method": {"name": "simgcd", "memax_weight": 2}}, {"method": {"name": "gcd"}}])
    ['method.memax_weight']
    """
    before, after = flat(merge_layers(layers[:-1])), flat(merge_layers(layers))
    return [name for name, value in before.items() if name not in after and not _waits(value)]


def _forget_waiting(section: dict[str, Any], name: str, of_part: object) -> None:
    """What is said plainly and later is over what waits: under the part that is chosen, or, if none is yet, any."""
    for part, waiting in section.items():
        if _waits(waiting) and of_part in (None, part):
            section[part] = {other: value for other, value in waiting.items() if other != name}


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """All settings by their full names.

    >>> flat({"train": {"lr": 0.1}, "k": 3})
    {'train.lr': 0.1, 'k': 3}
    """
    return {
        f"{section}.{name}" if name else section: value
        for section, values in settings.items()
        for name, value in (values.items() if isinstance(values, Mapping) else [("", values)])
    }


def name_of(merged: dict[str, Any], section: str, default: str | None) -> str:
    name = merged[section].pop("name", default)
    if name is None:
        raise NewkindsError(f"no {section} given.")
    return str(name)


def _waits(setting: Any) -> bool:
    """No setting is a mapping: a mapping holds the settings of the part with its name, for when that is chosen."""
    return isinstance(setting, Mapping)


def section_of_chosen(
    section: str, builder: Callable[[str], Callable[..., Any]], chosen: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of what is chosen: those given plainly, and over them those under its name, which `merge_layers`
    keeps only if they were said later. `builder`: what each part is built by, whose arguments are its settings."""
    waiting = {name: settings for name, settings in given.items() if _waits(settings)}
    for name, settings in waiting.items():
        section_of(f"{section}.{name}", builder(name), settings)  # a mistake does not wait
    plain = {name: value for name, value in given.items() if name not in waiting}
    return section_of(section, builder(chosen), {**plain, **waiting.get(chosen, {})})


def section_of(section: str, build: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of what `build` builds: those given, checked, and the defaults of the others."""
    settings = settings_of(build)
    for name in given:
        if name not in settings:
            known = f" There are: {', '.join(settings)}." if settings else " It has no settings."
            raise NewkindsError(f"there is no setting '{section}.{name}'.{nearest(str(name), settings) or known}")
    values = {}
    for name, parameter in settings.items():
        if name in given:
            values[name] = coerce(given[name], parameter.annotation, f"{section}.{name}")
        elif parameter.default is inspect.Parameter.empty:
            raise NewkindsError(f"the setting '{section}.{name}' is missing.")
        else:
            values[name] = parameter.default
    return values


def coerce(value: Any, wanted: Any, where: str) -> Any:
    """`value` as the annotated type and within its range, or an error that names the setting.

    >>> coerce("1e-3", Annotated[float, Range(0, 1)], "method.sup_weight")
    0.001
    """
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        for option in get_args(wanted):
            with suppress(NewkindsError):
                return coerce(value, option, where)
    elif origin is Annotated:
        plain, *notes = get_args(wanted)
        with suppress(NewkindsError):  # the message below says the range too
            found = coerce(value, plain, where)
            if all(found in note for note in notes if isinstance(note, Range)):
                return found
    elif origin is Literal:
        if any(value == option and type(value) is type(option) for option in get_args(wanted)):  # False is not 0
            return value
    elif wanted in (int, bool, type(None)):
        if type(value) is wanted:  # True is an int, too
            return value
    elif wanted is float and not isinstance(value, bool):
        with suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(number := float(value)):  # YAML reads 1e-3 as text
                return number
    elif wanted is str and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    elif origin is list and isinstance(value, list):
        return [coerce(item, get_args(wanted)[0], where) for item in value]
    raise NewkindsError(f"the setting '{where}' must be {_described(wanted)}, not {_short(value)}.")


def _short(value: Any) -> str:
    """A value as an error shows it: whatever it is, in a line."""
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        text = "a number of thousands of digits"
    return text if len(text) <= 80 else f"{text[:77]}…"


def _described(wanted: Any) -> str:
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
    if get_origin(wanted) is Annotated:
        plain, *notes = get_args(wanted)
        return " ".join([_described(plain), *(str(note) for note in notes if isinstance(note, Range))])
    if get_origin(wanted) is Literal:
        return "one of " + ", ".join(map(str, get_args(wanted)))
    if get_origin(wanted) in (Union, types.UnionType):
        return " or ".join(_described(option) for option in get_args(wanted))
    if get_origin(wanted) is list:
        return f"a list [{_described(get_args(wanted)[0])}, …]"
    return words.get(wanted, str(wanted))
