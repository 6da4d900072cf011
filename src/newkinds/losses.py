# The short name of newkinds.methods.losses.
from .methods.losses import *  # noqa: F403
from .methods.losses import __all__ as __all__
from .methods.losses import __doc__ as __doc__
