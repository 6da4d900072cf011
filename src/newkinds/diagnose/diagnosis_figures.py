"""The short name of newkinds.evaluation.diagnose.diagnosis_figures."""

from ..evaluation.diagnose.diagnosis_figures import *  # noqa: F403
