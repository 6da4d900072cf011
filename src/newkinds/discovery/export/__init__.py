"""What was found, taken elsewhere: one function per format. Nothing here needs torch before a model is written."""

from . import coco, fiftyone, folders, imagefolder, label_studio, models, tables, tree  # noqa: F401  (register formats)
from .base import EXPORTS, new_target

__all__ = ["EXPORTS", "new_target"]
