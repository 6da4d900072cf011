"""The short name of newkinds.encoders.organizers.token_centres."""

from ..encoders.organizers.token_centres import *  # noqa: F403
