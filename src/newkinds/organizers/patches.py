"""The short name of newkinds.encoders.organizers.patches."""

from ..encoders.organizers.patches import *  # noqa: F403
