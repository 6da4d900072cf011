"""A run directory that looks as if something had been discovered, made in milliseconds: no training, no torch."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save

from newkinds.discovery.categories import Discovery
from newkinds.discovery.kinds import Member, category_names, category_of
from newkinds.runs.directory import RunDirectory

DIM = 16


def discovered(
    folder: Path, sizes: dict[str, int] | None = None, new: int = 4, per_category: int = 6, parts: int = 2
) -> Path:
    """Known classes with their numbers of images, and `new` categories; the first image of a known class is labelled.

    Each category's embedding is `parts` clearly separate groups of images in turn, so that it is clear how to split it.
    """
    known = sizes or {"cat": per_category, "dog": per_category}
    names = category_names(list(known), len(known) + new)
    of = [c for c, name in enumerate(names) for _ in range(known.get(name, per_category))]
    generator = np.random.default_rng(0)
    members, rows, counts = [], [], [0] * len(names)
    centres = generator.normal(size=(len(names), parts, DIM))
    for c in of:
        place, counts[c] = counts[c], counts[c] + 1
        label = names[c] if c < len(known) and place == 0 else None
        path = f"{label or 'unlabeled'}/{names[c]}-{place}.jpg"
        sure = round(float(generator.uniform(0.3, 1)), 4)
        members.append(Member(path, label, names[c], c >= len(known), sure, 0.5, c))
        rows.append(centres[c, place % parts] + 0.05 * generator.normal(size=DIM))
    inside = [[member for member in members if member.category_id == c] for c in range(len(names))]
    categories = [category_of(c, name, c >= len(known), inside[c]) for c, name in enumerate(names)]
    run = RunDirectory(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run.write("config.yaml", "data: {name: folder, path: photos}\n")
    embedding = np.stack(rows) / np.linalg.norm(rows, axis=1, keepdims=True)
    run.write("embedding.safetensors", save({"embedding": embedding.astype(np.float16)}))
    Discovery(folder, categories, members, []).write()
    return folder


def shown(found: Discovery) -> tuple[dict[int, str], dict[str, int], dict[str, str]]:
    """What people see: names of categories, where images are, and what was said about single ones."""
    names = {category.id: category.name for category in found.categories}
    place = {member.path: member.category_id for member in found.members}
    return names, place, {member.path: member.status for member in found.members if member.status}
