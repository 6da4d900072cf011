"""A model that other code has trained becomes a run."""

from pathlib import Path

from typing_extensions import Unpack

from ..discovery.categories import Discovery
from ..files import user_path
from ..runs.run import Run
from ..training.published import PROTOTYPES, head_of_simgcd
from .choices import Choices, layers_of
from .layers import resolve_layers
from .results import write_views
from .train import begin_model, load_images, train_on, with_k


def import_checkpoint(
    checkpoint: str | Path, data: str | Path | None, out: str | Path, **choices: Unpack[Choices]
) -> Discovery:
    """Make a run of a checkpoint that SimGCD's code has saved: nothing is trained, and the images of `data` are
    assigned by its prototypes. The known classes must be those it was trained with, in the same order.

    >>> import_checkpoint("model_best.pt", None, "runs/published", recipe="simgcd/cub", data_root="datasets/")
    """
    file = user_path(checkpoint)
    given = {
        "k": len(head_of_simgcd(file)[PROTOTYPES]),
        "backbone": {"weights": str(file)},
        "train": {"start": str(file), "cache_views": 0},
    }
    run = Run(out)
    run.refuse_other_contents()
    config = resolve_layers([given, *layers_of(data, choices)], run)
    table = load_images(config, run)
    config, _ = with_k(config, table, run)
    trained = train_on(table, config, run, model=begin_model(table, config), trains_now=False)
    found = trained.show(table, page=False)
    write_views(run)
    return found
