"""The version of newkinds, which everything may import."""

__version__ = "0.2.0"
