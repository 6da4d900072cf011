"""Token organizers: modules between the backbone's tokens and the feature that a head receives."""

from . import adapter, apart, cpf, patches  # noqa: F401  (registers the organizers)
from .base import ORGANIZERS, Organizer

__all__ = ["ORGANIZERS", "Organizer"]
