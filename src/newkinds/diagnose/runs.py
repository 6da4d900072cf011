"""The short name of newkinds.evaluation.diagnose.runs."""

from ..evaluation.diagnose.runs import *  # noqa: F403
