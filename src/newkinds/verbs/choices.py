"""The options of a run. Each is declared once, here: it is an argument of `train`, `discover` and the
other verbs, an option of their commands, and short for a setting. This module is imported before torch is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, get_args, get_type_hints

from ..errors import NewkindsError, nearest

CACHE_VIEWS = (
    "compute the frozen part of the backbone only once, for V fixed random views of each image; 0: never "
    "(default: auto, which is 8 if there is no GPU and training is long enough)"
)
WHITEN = "whiten the embedding within classes, if that helps on labelled images (embedding.whiten=auto)"

PRECISION = "float32, bfloat16, float16 or auto (bfloat16 on a GPU), which overrides a recipe's"
DETERMINISTIC = "train only by algorithms that give the same bits each time"

DATA_ROOT = "where the data sets are (default: $NEWKINDS_DATA), or the files that a JSON list names (beside it)"
RECIPE = "YAML file with settings, or a bundled recipe: simgcd/cub; may be repeated, later ones win"
LABELS = "CSV file with labels of vectors in an .npy file, or of the photos in a JSON list of MegaDetector"
GROUP_BY_TIME = "photos taken within this time of each other, such as 10s, are one group (default: no grouping)"
METHOD = "discovery method (default: discover chooses how to train; train takes simgcd)"
ORGANIZER = "none, patches, adapter, cpf, coge, … (default: none, unless discover chooses how to train)"
ASSIGNER = "what finds the categories (default: discover and tune choose; of a named training: own, its method's)"
BACKBONE = "auto (default: the best that is available), tiny (bundled, for creatures) or any timm model"


class Option(NamedTuple):
    """How the command line shows a choice; its type and name are those of the argument."""

    setting: str | None  # what it is short for; None: it holds settings itself
    metavar: str
    help: str
    flag: str = ""  # if it is not the argument's name
    stands_for: str | bool | None = None  # the value of the setting, if the option is a switch


Name = str | None
File = str | Path | None
Number = int | None
NumberOrAuto = int | Literal["auto"] | None


class Choices(TypedDict, total=False):
    """What `train` and `discover` accept besides data and out; None is the same as leaving it out."""

    recipe: Annotated[File | Sequence[str | Path], Option(None, "FILE|NAME", RECIPE)]  # several: later ones win
    k: Annotated[NumberOrAuto, Option("k", "N", "number of categories in total, known and new; auto: estimate it")]
    method: Annotated[Name, Option("method.name", "NAME", METHOD)]
    organizer: Annotated[Name, Option("organizer.name", "NAME", ORGANIZER)]
    tuning: Annotated[Name, Option("tuning.name", "NAME", "what else trains in the backbone: prompts, lora, pixels")]
    assigner: Annotated[Name, Option("assigner.name", "NAME", ASSIGNER)]
    whiten: Annotated[bool | None, Option("embedding.whiten", "", WHITEN, stands_for="auto")]
    backbone: Annotated[Name, Option("backbone.name", "NAME", BACKBONE)]
    weights: Annotated[File, Option("backbone.weights", "FILE", "weights of the backbone: .safetensors or .pth")]
    data_root: Annotated[File, Option("data.root", "FOLDER", DATA_ROOT)]
    labels: Annotated[File, Option("data.labels", "FILE", LABELS)]
    group_by_time: Annotated[Name, Option("data.group_by_time", "TIME", GROUP_BY_TIME)]
    start: Annotated[File, Option("train.start", "RUN", "finished run to start from, for methods with two stages")]
    seed: Annotated[Number, Option("train.seed", "N", "seed of everything random (default: 0)")]
    epochs: Annotated[Number, Option("train.epochs", "N", "epochs of training")]
    device: Annotated[Name, Option("train.device", "NAME", "auto, cpu, cuda, mps (default: auto)")]
    precision: Annotated[Name, Option("train.precision", "NAME", PRECISION)]
    deterministic: Annotated[bool | None, Option("train.deterministic", "", DETERMINISTIC, stands_for=True)]
    cache_views: Annotated[NumberOrAuto, Option("train.cache_views", "V", CACHE_VIEWS)]
    # {"train": {"epochs": 20}} or several of these: later ones win, and over all of the above
    settings: Annotated[
        Mapping[str, Any] | Sequence[Mapping[str, Any]],
        Option(None, "A.B=C", "any setting, e.g. method.memax_weight=2; may be repeated", flag="--set"),
    ]


def options() -> dict[str, tuple[Any, Option]]:
    """Name of each choice → its type, and how the command line shows it."""
    hints = get_type_hints(Choices, include_extras=True)
    return {name: (get_args(hint)[0], get_args(hint)[1]) for name, hint in hints.items()}


def recipes_of(choices: Choices) -> list[str | Path]:
    """The recipes that the user named, in their order."""
    recipes = choices.get("recipe")
    if recipes is None:
        return []
    return [recipes] if isinstance(recipes, str | Path) else list(recipes)


def layers_of(data: str | Path | None, choices: Choices) -> list[Mapping[str, Any]]:
    """What the user chose as layers of settings, later ones win."""
    from ..console import say
    from ..data import source_of
    from ..runs.directory import RunDirectory
    from ..settings import find_recipe, forgotten, read_recipe

    known = options()
    for argument in choices:  # the types are not checked when a program runs
        if argument not in known:
            hint = nearest(argument, known)
            raise NewkindsError(f"there is no argument '{argument}'.{hint} There are: {', '.join(known)}.")
    layers: list[Mapping[str, Any]] = []
    for recipe in recipes_of(choices):
        file = find_recipe(recipe)
        layers.append(read_recipe(RunDirectory(file.parent).verified(file.name)))  # that of a run has a checksum
        for lost in forgotten(layers):
            say(f"the recipe {recipe} names another {lost.partition('.')[0]}: {lost} of an earlier recipe is left out")
    if data is not None:
        layers.append({"data": source_of(data)})
    for name, (_, option) in known.items():
        value = choices.get(name)
        if option.stands_for is not None:
            value = option.stands_for if value else None
        if value is not None and option.setting is not None:
            section, _, setting = option.setting.partition(".")
            value = str(value) if isinstance(value, Path) else value
            layers.append({section: {setting: value} if setting else value})
    settings = choices.get("settings", {})
    return [*layers, settings] if isinstance(settings, Mapping) else [*layers, *settings]
