"""The short name of newkinds.cluster.count.combination."""

from ..cluster.count.combination import *  # noqa: F403
