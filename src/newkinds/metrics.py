# The short name of newkinds.cluster.metrics.
from .cluster.metrics import *  # noqa: F403
from .cluster.metrics import __all__ as __all__
from .cluster.metrics import __doc__ as __doc__
