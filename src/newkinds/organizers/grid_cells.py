"""The short name of newkinds.encoders.organizers.grid_cells."""

from ..encoders.organizers.grid_cells import *  # noqa: F403
