"""Discovery methods, one file each."""

from . import (  # noqa: F401  (registers the methods)
    amend,
    cms,
    dccl,
    frozen,
    gcd,
    gpc,
    infosieve,
    legogcd,
    mugcd,
    promptcal,
    protogcd,
    selex,
    simgcd,
    sptnet,
    uno,
)
from .base import METHODS, Assignment, Batch, Method, Progress, Step

__all__ = ["METHODS", "Assignment", "Batch", "Method", "Progress", "Step"]
