"""The short name of newkinds.encoders.organizers.attention_pooling."""

from ..encoders.organizers.attention_pooling import *  # noqa: F403
