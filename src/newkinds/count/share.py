"""The short name of newkinds.cluster.count.share."""

from ..cluster.count.share import *  # noqa: F403
