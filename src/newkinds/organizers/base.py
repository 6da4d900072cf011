"""The short name of newkinds.encoders.organizers.base."""

from ..encoders.organizers.base import *  # noqa: F403
