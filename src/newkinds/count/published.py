"""The short name of newkinds.cluster.count.published."""

from ..cluster.count.published import *  # noqa: F403
