"""What was found, taken elsewhere: one function per format. Nothing here needs torch before a model is written."""

from . import models  # noqa: F401  (registers its formats)
from .base import EXPORTS, new_target

__all__ = ["EXPORTS", "new_target"]
