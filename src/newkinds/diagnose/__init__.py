# The short name of newkinds.evaluation.diagnose.
from ..evaluation.diagnose import *  # noqa: F403
from ..evaluation.diagnose import __all__ as __all__
from ..evaluation.diagnose import __doc__ as __doc__
