"""Token organizers: modules between the backbone's tokens and the feature that a head receives."""

from . import adapter, apart, coge, cpf, parts, patches, slots  # noqa: F401  (registers the organizers)
from .base import ORGANIZERS, Organizer

__all__ = ["ORGANIZERS", "Organizer"]
