"""FGVC-Aircraft: 100 variants of aircraft (Maji et al., 2013)."""

from __future__ import annotations

from pathlib import Path

from ...errors import NewkindsError
from .base import Benchmark, Listing, Part, index_lines, listed_files, register

INSTRUCTIONS = """Get fgvc-aircraft-2013b.tar.gz (2.8 GB) from https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/
and unpack it:
  ROOT/fgvc-aircraft-2013b/data/variants.txt, images_variant_trainval.txt, images_variant_test.txt
  ROOT/fgvc-aircraft-2013b/data/images/…jpg"""


def read_aircraft(folder: Path, part: Part) -> Listing:
    """Images in the order of the index file; class = place among the sorted variants."""
    variants = [f"{first} {rest}".strip() for _, first, rest in index_lines(folder / "variants.txt")]
    index = folder / f"images_variant_{'trainval' if part == 'train' else 'test'}.txt"
    known = set(variants)
    paths: list[str] = []
    labels: list[str] = []
    named_by: list[str] = []
    for line, image, variant in index_lines(index):
        if variant not in known:
            raise NewkindsError(f"{index} line {line} gives the variant {variant!r}, which variants.txt does not have.")
        paths.append(f"images/{image}.jpg")
        labels.append(variant)
        named_by.append(f"{index.name} line {line}")
    return Listing(listed_files(folder, paths, labels, named_by), sorted(variants))


register(
    Benchmark(
        name="aircraft",
        title="FGVC-Aircraft",
        about="100 variants of aircraft",
        read=read_aircraft,
        folders=(
            "fgvc-aircraft-2013b/data",
            "fgvc-aircraft-2013b",
            "fgvc_aircraft/data",
            "fgvc-aircraft/data",
            "aircraft/data",
            "aircraft/fgvc-aircraft-2013b/data",
        ),
        markers=("images_variant_trainval.txt",),
        archives=("fgvc-aircraft-2013b.tar.gz",),
        instructions=INSTRUCTIONS,
        images={"train": 6667, "test": 3333},
        published=("1.7k", "5.0k"),
    )
)
