"""The short name of newkinds.encoders.organizers.slot_attention."""

from ..encoders.organizers.slot_attention import *  # noqa: F403
