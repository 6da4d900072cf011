"""The short name of newkinds.cluster.count.mixture."""

from ..cluster.count.mixture import *  # noqa: F403
