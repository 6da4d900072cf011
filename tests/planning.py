"""Plans that are over in seconds: the shipped trainings with few steps, judged on two splits."""

from dataclasses import replace

import pytest

from newkinds.search import trainings, ways
from newkinds.search.search import Search
from newkinds.search.trainings import TRAININGS, Training, training_called

STEPS = 25
ADAPTER, *_ = TRAININGS
PRIMITIVES = training_called("adapter and primitives (CPF)")
METHOD = {**ADAPTER.settings["method"], "memax_weight": 1.0}
ANOTHER = replace(ADAPTER, name="another", settings={**ADAPTER.settings, "method": METHOD})


def shorten(patch: pytest.MonkeyPatch, *tried: Training, steps: int = STEPS) -> None:
    """While the patch is in force, these trainings are tried, with few steps."""
    patch.setattr(ways, "SPLITS", 2)
    patch.setattr(trainings, "TRAININGS", tuple(replace(training, steps=steps) for training in tried))
    # after so few steps every head looks collapsed, and the first split says that it has lost
    patch.setattr(Search, "_why_lost", lambda *_: "")
    patch.setattr(trainings, "FEWEST_FILLED", 0.0)
    patch.setattr(trainings, "MARGIN", 1.0)
