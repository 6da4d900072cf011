"""What verbs are made of. A verb is a function under `@verb(…)`: its docstring is the help, `_data_check` is `newkinds
data check`. What the user leaves out is not passed on, so that defaults are those of the Python function that it calls,
with which torch is imported. Choices of a run, such as --organizer, are declared in `verbs/choices.py`."""

import argparse
from collections.abc import Callable
from textwrap import dedent
from typing import Any, Literal, NamedTuple, get_args

from ..verbs.choices import options
from .parsing import Argument, whole_number, whole_number_or_auto


class Verb(NamedTuple):
    run: Callable[..., int | None]  # returns the exit status, if it is not 0
    arguments: tuple[Argument, ...]
    summary: str
    examples: list[str]  # the first is shown by `newkinds --help` too


VERBS: dict[str, Verb] = {}


def verb(*arguments: Argument) -> Callable[..., Any]:
    """Make a function a verb."""

    def add(run: Callable[..., int | None]) -> Callable[..., int | None]:
        summary, _, examples = dedent(f"    {(run.__doc__ or '').strip()}").partition("\n\n")
        VERBS[run.__name__.strip("_").replace("_", " ")] = Verb(run, arguments, summary, examples.splitlines())
        return run

    return add


def argument(flag: str, metavar: str, help: str, **how: Any) -> Argument:
    return flag, {"metavar": metavar, "help": help, "default": argparse.SUPPRESS, **how}


def switch(flag: str, dest: str, help: str) -> Argument:
    return flag, {"dest": dest, "help": help, "default": argparse.SUPPRESS, "action": "store_true"}


def choices(*names: str) -> list[Argument]:
    """Options that `verbs/choices.py` declares."""
    made = []
    for name in names:
        wanted, option = options()[name]
        kinds = get_args(wanted)
        number = whole_number_or_auto if Literal["auto"] in kinds else whole_number
        how = {"action": "append"} if name in ("settings", "recipe") else {"type": number if int in kinds else str}
        flag = option.flag or f"--{name.replace('_', '-')}"
        plain = argument(flag, option.metavar, option.help, dest=name, **how)
        made.append(plain if option.stands_for is None else switch(flag, name, option.help))
    return made


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def named_watchers(chosen: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a verb with watchers in the place of their names (--log)."""
    if "log" not in chosen:
        return chosen
    from ..training.watching import watchers_called

    return {name: value for name, value in chosen.items() if name != "log"} | {
        "watchers": watchers_called(chosen["log"])
    }


RUN = argument("run", "RUN", "run directory")
TRUTH = argument("--truth", "DATA", "true classes: a folder with one sub-folder per class, or a CSV file")
JSON = switch("--json", "as_json", "print JSON")
PLUGIN_HELP = "Python file that registers methods, organizers … of your own; may be repeated"
PLUGIN = argument("--plugin", "FILE.py", PLUGIN_HELP, dest="plugins", action="append")
SOURCE = "folder, CSV file (path,label), JSON of MegaDetector or COCO, .npy file with vectors, or name of a data set"
DATA = argument("data", "DATA", SOURCE, nargs="?")
DOWNLOAD = switch("--download", "may_download", "allow weights that are not on this machine to be downloaded, once")
LOG = argument("--log", "NAMES", "log the training to tensorboard, or to watchers of your own", type=names, dest="log")
TIME = argument("--time", "TIME", "how long it may take: 90s, 10m, 2h (default: 1h)")
PLANNED = (
    *choices("k", "labels", "group_by_time", "assigner", "whiten", "seed", "backbone", "weights"), DOWNLOAD,
    *choices("data_root", "device", "settings"),
)  # fmt: skip
BACKBONE = (
    *choices("labels", "group_by_time", "backbone", "weights"), DOWNLOAD,
    *choices("data_root", "recipe", "device", "settings"),
)  # fmt: skip
CHOSEN = (
    *choices("k", "method", "organizer", "tuning", "start", "assigner", "whiten", "seed", "epochs", "cache_views"),
    *choices("precision", "deterministic"),
    *BACKBONE,
)
TRAINING = (DATA, argument("--out", "RUN", "run directory to write", required=True), *CHOSEN)
