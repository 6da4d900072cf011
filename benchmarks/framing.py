"""Whether an image is worth a second look: `em` on class tokens of one view, and on the mean of two.

Views: the middle of the image, as everywhere in newkinds; the same mirrored; the whole of its shorter side; nearly all
of its longer side too (1.15 times the shorter), squeezed; all of it, squeezed. Each takes as long as the first.
Some kinds of a folder, and some images of each, are embedded once, into NAME-SIZE.npz (one array (n, D) for each view);
each seed then draws its classes and labels among them, as in choosing.py. K is given.

    python benchmarks/framing.py cars=cars_147:49 --kinds 98 --weights vit_small_patch14_dinov2.fp16.safetensors \\
        --out features/
"""

import argparse
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from choosing import accuracies, draw
from newkinds.data.folder import files_below
from newkinds.data.views import Preprocessing
from newkinds.encoders.backbones import Backbone, build_backbone
from newkinds.files import write_whole
from newkinds.search.frozen_features import USUAL
from newkinds.text import text_table

BATCH = 32
VIEWS = ("middle", "mirrored", "shorter side", "nearly all", "all")
PAIRS = tuple(f"middle + {view}" for view in VIEWS[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", help="NAME=FOLDER:CLASSES")
    parser.add_argument("--kinds", type=int, required=True, help="of the folder, from which a seed draws its classes")
    parser.add_argument("--images", type=int, default=36, help="of each kind, at most")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for data in given.data:
        name, _, place = data.partition("=")
        folder, classes = place.rsplit(":", 1)
        file = given.out / f"{name}-{given.size}.npz"
        if not file.is_file():
            backbone = build_backbone("vit_small_patch14_dinov2", weights=given.weights, image_size=given.size)
            write_whole(file, embed_views(backbone, *some_images(Path(folder), given.kinds, given.images)))
        with np.load(file, allow_pickle=False) as arrays:
            compare(name, dict(arrays), int(classes), given.seeds)


def some_images(folder: Path, kinds: int, most: int) -> tuple[list[Path], list[str]]:
    """Images of some kinds, and the kind of each."""
    random = np.random.RandomState(7)
    names = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    drawn = [names[place] for place in sorted(random.permutation(len(names))[:kinds])]
    files: list[Path] = []
    truth: list[str] = []
    for kind in drawn:
        inside = sorted(kind / path for path in files_below(kind, []))
        files += [inside[place] for place in sorted(random.permutation(len(inside))[:most])]
        truth += [kind.name] * (len(files) - len(truth))
    return files, truth


@torch.inference_mode()
def embed_views(backbone: Backbone, files: list[Path], truth: list[str]) -> bytes:
    """The content of an .npz file with the class tokens of every view."""
    tokens: dict[str, list[Tensor]] = {view: [] for view in VIEWS}
    for first in range(0, len(files), BATCH):
        images = [Image.open(file).convert("RGB") for file in files[first : first + BATCH]]
        for view, of_view in tokens.items():
            pixels = torch.stack([view_of(image, view, backbone.preprocessing) for image in images])
            of_view.append(backbone(backbone.preprocessing.normalise(pixels), patches=False).cls)
        print(f"{first + len(images)} of {len(files)}", end="\r", flush=True)
    content = io.BytesIO()
    arrays: dict[str, Any] = {view: torch.cat(rows).numpy() for view, rows in tokens.items()}
    np.savez(content, truth=np.array(truth), **arrays)
    return content.getvalue()


def view_of(image: Image.Image, view: str, preprocessing: Preprocessing) -> Tensor:
    """(3, size, size) uint8."""
    if view in ("middle", "mirrored"):
        middle = preprocessing.centre_view(preprocessing.resize(image))
        return middle.flip(-1) if view == "mirrored" else middle
    most = {"shorter side": 1.0, "nearly all": 1.15, "all": float("inf")}[view] * min(image.size)
    width, height = (int(min(side, most)) for side in image.size)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    size = (preprocessing.size, preprocessing.size)
    squeezed = image.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(squeezed)).permute(2, 0, 1)


def compare(name: str, arrays: dict[str, NDArray[np.float32]], classes: int, seeds: list[int]) -> None:
    """All of `em` in percent, with each view and each pair."""
    truth = arrays.pop("truth").astype(np.str_)
    unit = {view: rows / np.linalg.norm(rows, axis=1, keepdims=True) for view, rows in arrays.items()}
    lines = []
    for features in (*VIEWS, *PAIRS):
        mean = sum(unit[view] for view in features.split(" + "))
        found = [all_of(mean, truth, classes, seed) for seed in seeds]
        lines.append([features, f"{np.mean(found):.1f}", " ".join(f"{value:.1f}" for value in found)])
    print(f"\n{name}\n{text_table(['features', 'All', 'of each seed'], lines)}")


def all_of(features: NDArray[np.float32], names: NDArray[np.str_], classes: int, seed: int) -> float:
    rows, truth, labels = draw(features, names, classes, seed, uneven=1.0)
    return accuracies(USUAL, rows, truth, labels, int(labels.max()) + 1, int(truth.max()) + 1)[0]


if __name__ == "__main__":
    main()
