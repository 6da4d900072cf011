"""The verbs for people with a folder of images: discover, and tune, which is its choosing alone."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from typing_extensions import Unpack

from ..discovery.categories import Discovery
from ..errors import NewkindsError
from ..runs.run import FREE_TO_CHANGE, Run
from ..settings import flat
from .candidates import table_text
from .choices import Choices, layers_of
from .plan import HOUR, Plan
from .settled import Layers, settled
from .train import images_of, train_on, with_k

# settings that say how to train: whoever names one has chosen the training
OF_TRAINING = ("method", "tuning", "organizer", "train")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def discover(
    data: str | Path | None, out: str | Path | None = None, *, time: str | float | None = None, page: bool = True,
    **choices: Unpack[Choices],
) -> Discovery:  # fmt: skip
    """Find the known and new categories of partly labelled images, and write tables and a page.

    By default the way to do it is chosen by evidence: an answer from frozen features comes first, then trainings are
    tried and judged on labelled images alone, within `time` ("10m", "2h", or seconds; an hour by default). Naming a
    method, an organizer, a recipe or how to train switches the choosing of the training off. `out` is
    `newkinds-NAME` by default, with the name of the data. `page=False` writes no page if a training was named:
    a grid of many runs needs none. To resume, make the same call again.

    >>> found = newkinds.discover("photos/", "runs/photos", time="10m")
    >>> len(found.new)
    """
    layers, run = layers_of(data, choices), Run(default_out(data) if out is None else out)
    run.refuse_other_contents()
    budget = seconds_of(time)
    if names_training(layers):
        config = settled(layers, run)
        table = images_of(config, run)
        if config.k is None and table.categories is None:
            config = replace(config, k="auto")
        config, counted = with_k(config, table, run)
        return train_on(table, config, run, counted).show(table, page)
    plan = Plan(layers, run, budget)
    plan.look()
    plan.embed()
    plan.judge_frozen()
    plan.answer()
    plan.judge_trained()
    return plan.finish()


def tune(
    data: str | Path | None, out: str | Path | None = None, *, time: str | float | None = None,
    **choices: Unpack[Choices],
) -> dict[str, Any]:  # fmt: skip
    """Compare the ways to find categories on labelled images alone, and write the best as a recipe.

    `out`, a folder, gets `plan.json` and `recipe.yaml`, which `discover` takes as `recipe`.

    >>> newkinds.tune("photos/", "tuned", time="30m")["chosen"]
    >>> newkinds.discover("photos/", recipe="tuned/recipe.yaml")
    """
    layers, run = layers_of(data, choices), Run(default_out(data, "tune") if out is None else out)
    run.refuse_other_contents()
    run.own.require("recipe.yaml")
    if names_training(layers):
        raise NewkindsError("tune chooses how to train: leave out the method, organizer and training settings.")
    plan = Plan(layers, run, seconds_of(time))
    plan.look()
    plan.embed()
    plan.judge_frozen()
    plan.keep()
    plan.judge_trained()
    run.write("recipe.yaml", yaml.safe_dump(plan.recipe(), sort_keys=False, allow_unicode=True))
    record = plan.record()
    run.write_json("plan.json", record)
    return {**record, "table": table_text(plan.candidates, plan.chosen)}


def names_training(layers: Layers) -> bool:
    """Whether somebody has said how to train."""
    named = {name for layer in layers for name in flat(layer)}
    free = {*FREE_TO_CHANGE, "train.seed", "train.precision"}
    return any(name.partition(".")[0] in OF_TRAINING and name not in free for name in named)


def default_out(data: str | Path | None, what: str = "") -> Path:
    """Where a run goes if nobody says: newkinds-NAME, here."""
    if data is None:
        raise NewkindsError("say where to write: --out RUN.")
    name = re.sub(r"[^\w.-]+", "-", Path(data).resolve().stem if Path(data).exists() else str(data))
    return Path("-".join(filter(None, ["newkinds", what, name])))


def seconds_of(time: str | float | None) -> float:
    """`10m`, `2h`, `90s` or seconds → seconds; an hour if nothing is said."""
    if time is None:
        return HOUR
    if isinstance(time, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", time.lower())
        if found is None:
            raise NewkindsError(f"--time {time} is not a time: write 90s, 10m or 2h.")
        time = float(found[1]) * UNITS[found[2] or "m"]
    if not 0 < time < float("inf"):
        raise NewkindsError(f"--time {time:g} is not a time: write 90s, 10m or 2h.")
    return float(time)
