"""Discovery methods, one file each."""

from . import cms, frozen, gcd, infosieve, legogcd, selex, simgcd  # noqa: F401  (registers the methods)
from .base import METHODS, Assignment, Batch, Method, Progress, Step

__all__ = ["METHODS", "Assignment", "Batch", "Method", "Progress", "Step"]
