"""The short name of newkinds.cluster.count.base."""

from ..cluster.count.base import *  # noqa: F403
