"""A run that looks as if something had been discovered, with images and all that its page is made of; no torch."""

from pathlib import Path

from conftest import save_image
from discovered import discovered
from newkinds.discovery.categories import Discovery
from newkinds.discovery.described import Described, write_described
from newkinds.runs.directory import RunDirectory

COLOURS = [(200, 60, 60), (60, 160, 60), (60, 60, 200), (200, 180, 40), (150, 60, 180), (60, 180, 180)]


def pictured(folder: Path) -> Path:
    """`folder/run` of the images in `folder/photos`: 6 of each of the classes cat and dog and of 4 new categories."""
    run, photos = discovered(folder / "run"), folder / "photos"
    for member in Discovery.read(run).members:
        save_image(photos / member.path, COLOURS[member.category_id])
    directory = RunDirectory(run)
    directory.write("config.yaml", f"data: {{name: folder, path: {photos}}}\n")
    write_described(Described(["cat", "dog"], [("data", "folder"), ("seed", "0")]), directory)
    return run
