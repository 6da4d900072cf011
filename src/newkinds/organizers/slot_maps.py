"""The short name of newkinds.encoders.organizers.slot_maps."""

from ..encoders.organizers.slot_maps import *  # noqa: F403
