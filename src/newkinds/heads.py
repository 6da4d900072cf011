# The short name of newkinds.methods.heads.
from .methods.heads import *  # noqa: F403
from .methods.heads import __all__ as __all__
from .methods.heads import __doc__ as __doc__
