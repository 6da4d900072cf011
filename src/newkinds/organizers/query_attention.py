"""The short name of newkinds.encoders.organizers.query_attention."""

from ..encoders.organizers.query_attention import *  # noqa: F403
