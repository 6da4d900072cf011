# The short name of newkinds.encoders.organizers.
from ..encoders.organizers import *  # noqa: F403
from ..encoders.organizers import __all__ as __all__
from ..encoders.organizers import __doc__ as __doc__
