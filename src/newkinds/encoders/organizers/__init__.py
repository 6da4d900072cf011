"""Token organizers: modules between the backbone's tokens and the feature that a head receives."""

from . import (  # noqa: F401  (registers the organizers)
    adapter,
    attention_pooling,
    coge,
    cpf,
    cpf_parts,
    grid_cells,
    part_queries,
    patches,
    slot_attention,
)
from .base import ORGANIZERS, Organizer

__all__ = ["ORGANIZERS", "Organizer"]
