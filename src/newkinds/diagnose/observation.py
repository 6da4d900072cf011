"""The short name of newkinds.evaluation.diagnose.observation."""

from ..evaluation.diagnose.observation import *  # noqa: F403
