"""Tunings: how a backbone is adapted besides training its last blocks."""

from . import lora, pixels, prompts  # noqa: F401  (registers the tunings)
from .base import TUNINGS, Anatomy, LastBlocks, Tuning

__all__ = ["TUNINGS", "Anatomy", "LastBlocks", "Tuning"]
