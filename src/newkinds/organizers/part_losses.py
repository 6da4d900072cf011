"""The short name of newkinds.encoders.organizers.part_losses."""

from ..encoders.organizers.part_losses import *  # noqa: F403
