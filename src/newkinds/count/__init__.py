# The short name of newkinds.cluster.count.
from ..cluster.count import *  # noqa: F403
from ..cluster.count import __all__ as __all__
from ..cluster.count import __doc__ as __doc__
