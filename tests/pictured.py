"""A run that looks as if something had been discovered, with images and all that its page is made of; no torch."""

from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.numpy import load_file, save

from conftest import save_image
from discovered import discovered
from newkinds.data.creatures import drawing
from newkinds.discovery.categories import Discovery
from newkinds.discovery.described import Described, write_described
from newkinds.runs.directory import RunDirectory

COLOURS = [(200, 60, 60), (60, 160, 60), (60, 60, 200), (200, 180, 40), (150, 60, 180), (60, 180, 180)]


def pictured(folder: Path) -> Path:
    """`folder/run` of the images in `folder/photos`: 6 of each of the classes cat and dog and of 4 new categories."""
    run = discovered(folder / "run")
    for member in Discovery.read(run).members:
        save_image(folder / "photos" / member.path, COLOURS[member.category_id])
    return _described(run, folder / "photos", ["cat", "dog"])


def drawn(folder: Path, sizes: dict[str, int], new: int, per_category: int) -> Path:
    """The same with creatures as images, which is nicer to look at and takes longer."""
    run = discovered(folder / "run", sizes, new, per_category)
    kinds = drawing.kinds(len(sizes) + new, 5, "evaluated")
    for number, member in enumerate(Discovery.read(run).members):
        file = folder / "photos" / member.path
        file.parent.mkdir(parents=True, exist_ok=True)
        image, _ = drawing.draw_creature(kinds[member.category_id], np.random.default_rng(number), 96)
        Image.fromarray(image).save(file)
    rows = load_file(run / "embedding.safetensors")["embedding"]
    spread = 0.12 * np.random.default_rng(0).normal(size=rows.shape)  # for a map that looks like one
    RunDirectory(run).write("embedding.safetensors", save({"embedding": (rows + spread).astype(np.float16)}))
    return _described(run, folder / "photos", list(sizes))


def _described(run: Path, photos: Path, known: list[str]) -> Path:
    directory = RunDirectory(run)
    directory.write("config.yaml", f"data: {{name: folder, path: {photos}}}\n")
    write_described(Described(known, [("data", "folder"), ("seed", "0")]), directory)
    return run
