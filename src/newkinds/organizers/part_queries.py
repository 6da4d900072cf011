"""The short name of newkinds.encoders.organizers.part_queries."""

from ..encoders.organizers.part_queries import *  # noqa: F403
