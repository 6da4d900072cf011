"""The short name of newkinds.cluster.count.cuts."""

from ..cluster.count.cuts import *  # noqa: F403
