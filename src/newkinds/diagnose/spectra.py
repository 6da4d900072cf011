"""The short name of newkinds.evaluation.diagnose.spectra."""

from ..evaluation.diagnose.spectra import *  # noqa: F403
