"""How quick the studio and the command line's corrections are: a run is drawn, not trained; then a real server is asked
by a real client.

    python benchmarks/studio.py                              # 10,000 images in 200 categories: about 3 minutes
    python benchmarks/studio.py --images 2000 --categories 40
    python benchmarks/studio.py --keep runs/drawn            # keep the drawn run, e.g. to look at it in the studio
"""

import colorsys
from pathlib import Path

import numpy as np
import yaml
from PIL import Image
from safetensors.numpy import save

from newkinds.data import load_table
from newkinds.discovery.categories import Discovery, Member, category_names, category_of, write
from newkinds.discovery.split import EMBEDDING
from newkinds.runs.directory import RunDirectory

DIMENSIONS = 192
WRONG = 0.05  # share of the images that the drawn model puts into another category
SIDE = 48  # px of a drawn photo


def draw_photos(folder: Path, images: int, categories: int, seed: int = 0) -> Path:
    """Small PNG files, a colour for each category; those of the first half are known, and half of theirs labelled."""
    rng = np.random.default_rng(seed)
    for number in range(images):
        category = number % categories
        known = category < categories // 2 and (number // categories) % 2 == 0
        file = folder / (f"kind-{category:03d}" if known else "unlabeled") / f"{category:03d}-{number:05d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        colour = np.array(colorsys.hsv_to_rgb(category / categories, 0.4 + 0.5 * (category % 3) / 2, 0.85))
        blocks = np.kron(rng.normal(0, 0.12, (6, 6, 1)), np.ones((SIDE // 6, SIDE // 6, 1))) + colour
        Image.fromarray((blocks.clip(0, 1) * 255).astype(np.uint8)).save(file, compress_level=1)
    return folder


def draw_run(
    out: Path, data: dict[str, object], truth: list[int], known: int, seed: int = 0, wrong: float = WRONG
) -> Path:
    """A run directory as a finished run leaves it, but without a model: a few images are wrongly assigned.

    `truth` is the category of each image of the table that the settings `data` describe; the first `known` have labels.
    """
    rng, table, run = np.random.default_rng(seed), load_table(dict(data)), RunDirectory(out)
    k = max(truth) + 1
    names = category_names([str(name) for name in table.known], k)
    is_wrong = rng.random(len(table)) < wrong
    category = np.where(is_wrong, rng.integers(0, k, len(table)), truth)
    centres = rng.normal(size=(k, DIMENSIONS))
    centres[1::2] = centres[: k // 2 * 2 : 2] + 0.9 * centres[1::2]  # every second one has a near neighbour
    lean = rng.beta(2, 5, (len(table), 1)) * (category != np.array(truth))[:, None]
    rows = (1 - lean) * centres[category] + lean * centres[truth] + rng.normal(size=(len(table), DIMENSIONS))
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    confidence = np.where(is_wrong, rng.uniform(0.2, 0.6, len(table)), rng.beta(8, 2, len(table))).round(4).tolist()
    unlike = rng.gamma(4, 0.12, len(table)).round(3).tolist()
    members = [
        Member(path, label, names[c], c >= known, sure, far, c)
        for path, label, c, sure, far in zip(
            table.paths, table.labels, category.tolist(), confidence, unlike, strict=True
        )
    ]
    inside: list[list[Member]] = [[] for _ in names]
    for member in members:
        inside[member.category_id].append(member)
    out.mkdir(parents=True, exist_ok=True)
    run.write("config.yaml", yaml.safe_dump({"data": data, "organizer": {"name": "none"}}))
    run.write(EMBEDDING, save({"embedding": rows.astype(np.float16)}))
    found = [category_of(number, name, number >= known, inside[number]) for number, name in enumerate(names)]
    write(Discovery(out, found, members, []), run)
    return out


def draw(folder: Path, images: int, categories: int) -> Path:
    """A run of drawn photos, all below `folder`."""
    photos = draw_photos(folder / "photos", images, categories)
    data = {"name": "folder", "path": str(photos.resolve())}
    truth = [int(Path(path).name[:3]) for path in load_table(data).paths]
    return draw_run(folder / "run", data, truth, categories // 2)
