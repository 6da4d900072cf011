"""FGVC-Aircraft: 100 variants of aircraft (Maji et al., 2013)."""

from pathlib import Path

from ...errors import NewkindsError
from .base import Listing, Part, index_lines, listed_files


def read_aircraft(folder: Path, part: Part) -> Listing:
    """Images in the order of the index file; class = place among the sorted variants."""
    variants = sorted(f"{first} {rest}".strip() for _, first, rest in index_lines(folder / "variants.txt"))
    index = folder / f"images_variant_{'trainval' if part == 'train' else 'test'}.txt"
    rows = []
    for line, image, variant in index_lines(index):
        if variant not in variants:
            raise NewkindsError(f"{index} line {line} gives the variant {variant!r}, which variants.txt does not have.")
        rows.append((f"images/{image}.jpg", variant, f"{index.name} line {line}"))
    return Listing(listed_files(folder, rows), variants)
