"""The short name of newkinds.evaluation.diagnose.field_measures."""

from ..evaluation.diagnose.field_measures import *  # noqa: F403
