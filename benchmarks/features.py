"""Class tokens of a frozen backbone as an .npz file, for the benchmarks that begin with features.

A file has `cls` (n, D), `truth` (n,) the folder that each image lies in, and `paths` (n,). Tokens go through the cache
that all commands share, so that a killed run continues, and `newkinds discover` on the same images finds them there.

    python benchmarks/features.py --data cars=cars_147 cub=CUB_200_2011/images --sizes 112 224 \\
        --weights vit_small_patch14_dinov2.fp16.safetensors --out features/
"""

import argparse
import io
from pathlib import Path

import numpy as np
import torch

from newkinds.data.folder import files_below, table_below
from newkinds.data.table import readable
from newkinds.encoders.encoder import frozen_encoder
from newkinds.files import write_whole
from newkinds.runs.config import resolve
from newkinds.training.cache import cached_class_tokens
from newkinds.training.embedding import embed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", required=True, help="NAME=FOLDER with one folder per class")
    parser.add_argument("--sizes", type=int, nargs="+", default=[112], help="pixels along one side")
    parser.add_argument("--backbone", default="vit_small_patch14_dinov2")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for size in given.sizes:
        for data in given.data:
            name, _, folder = data.partition("=")
            file = given.out / f"{name}-{size}.npz"
            if not file.is_file():
                write_whole(file, embed_folder(Path(folder), size, given.backbone, given.weights))
            print(file, flush=True)


def embed_folder(folder: Path, size: int, backbone: str, weights: str) -> bytes:
    """The content of an .npz file with the class tokens of all images below a folder."""
    paths = sorted(str(path.relative_to(folder)) for path in files_below(folder, []))
    table = readable(table_below(folder, paths, [None] * len(paths)), contents=True)
    source = {"name": "folder", "path": str(folder.resolve())}
    config = resolve({"data": source, "backbone": {"name": backbone, "weights": weights, "image_size": size}})
    encoder = frozen_encoder(**config.backbone)
    device = torch.device("cpu")
    cache = cached_class_tokens(encoder.backbone, table, about=f"{folder.name}, {backbone}", device=device)
    features = embed(encoder, table, device, cache=cache).features.numpy()
    truth = np.array([path.split("/")[0] for path in table.paths])
    content = io.BytesIO()
    np.savez(content, cls=features, truth=truth, paths=np.array(table.paths))
    return content.getvalue()


if __name__ == "__main__":
    main()
