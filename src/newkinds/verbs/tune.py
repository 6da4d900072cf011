"""The verb that compares the ways to find categories, and writes the best as a recipe."""

from pathlib import Path
from typing import Any

import yaml
from typing_extensions import Unpack

from ..assigners.resplit import can_judge
from ..console import say
from ..errors import NewkindsError
from ..runs.records import PlanRecord
from ..runs.run import Run
from ..search.clock import seconds_of
from ..search.trainings import training_called
from .choices import Choices, layers_of
from .count import refuse_impossible
from .discover import announce, compare_frozen, default_out, names_training, prepare_search
from .layers import resolve_layers
from .plan import Plan, PlannedSearch, settings_of_choice
from .stages import HOUR, look, require_time
from .train import load_images

RECIPE = "recipe.yaml"


def tune(
    data: str | Path | None, out: str | Path | None = None, *, time: str | float | None = None,
    **choices: Unpack[Choices],
) -> PlanRecord:  # fmt: skip
    """Compare the ways to find categories on labelled images alone, and write the best as a recipe.

    `out`, a folder, gets `plan.json` and `recipe.yaml`, which `discover` takes as `recipe`.

    >>> newkinds.tune("photos/", "tuned", time="30m").chosen
    >>> newkinds.discover("photos/", recipe="tuned/recipe.yaml")
    """
    layers, run = layers_of(data, choices), Run(default_out(data, "tune") if out is None else out)
    run.refuse_other_contents()
    run.own.require(RECIPE)
    if names_training(layers):
        raise NewkindsError("tune chooses how to train: leave out the method, organizer and training settings.")
    plan = Plan(run, layers, seconds_of(time, HOUR))
    config = resolve_layers(plan.layers)
    table = load_images(config, run)
    plan.take_images(table)
    if plan.is_finished() and plan.earlier is not None and run.path(RECIPE).is_file():
        say(f"{run.folder} is finished already")
        return plan.earlier
    with plan.clock.stage("look at the data"):
        refuse_impossible(config.k, table)
        looked = look(table, config, plan.layers, plan.clock.seconds, can_judge(table.targets))
        require_time(looked, plan.clock.seconds)
    announce(looked, plan)
    _, number, planned = prepare_search(plan, looked)
    planned.keep()
    compare_frozen(planned)
    with plan.clock.stage("compare trainings"):
        planned.compare_trainings()
    recipe = recipe_of(planned, number.k)
    run.write(RECIPE, yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True))
    if late := plan.clock.overrun():
        say(late)
    return planned.finish()


def recipe_of(planned: PlannedSearch, k: int) -> dict[str, Any]:
    """What was chosen, as settings for all images."""
    chosen = planned.choice.candidate
    training = training_called(chosen.training) if chosen.training else None
    settings = dict(settings_of_choice(chosen, training, len(planned.looked.table)))
    named = settings.get("backbone", {})
    backbone = {**planned.looked.base["backbone"], **(named if isinstance(named, dict) else {})}
    if weights := planned.looked.config.backbone["weights"]:
        backbone["weights"] = weights
    return {**settings, "backbone": backbone, "k": k}
