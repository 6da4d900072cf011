"""The short name of newkinds.evaluation.diagnose.result."""

from ..evaluation.diagnose.result import *  # noqa: F403
