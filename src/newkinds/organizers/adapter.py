"""The short name of newkinds.encoders.organizers.adapter."""

from ..encoders.organizers.adapter import *  # noqa: F403
