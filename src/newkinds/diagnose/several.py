"""The short name of newkinds.evaluation.diagnose.several."""

from ..evaluation.diagnose.several import *  # noqa: F403
