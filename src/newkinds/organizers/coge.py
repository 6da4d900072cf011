"""The short name of newkinds.encoders.organizers.coge."""

from ..encoders.organizers.coge import *  # noqa: F403
