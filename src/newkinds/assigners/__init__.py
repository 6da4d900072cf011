"""Assigners: from embedded images to categories, one file per idea."""

from . import centres, continued, em, nearest_images, pim, prototypes  # noqa: F401  (registers the assigners)
from .base import ASSIGNERS, Assigner, Assignment

__all__ = ["ASSIGNERS", "Assigner", "Assignment"]
