"""onnxruntime against torch: images per second of one model, in one process, by turns, with the same number of threads.

    python benchmarks/exported.py                                        # the bundled backbone, and a DINOv2 ViT-S/14
    python benchmarks/exported.py --weights dinov2_vits14_pretrain.pth   # with its real weights
    python benchmarks/exported.py --images photos/ --batch 1 16 --threads 4

Both get the same pixels and give category, confidence, unlike, probabilities and embedding. Without --weights the
ViT-S/14 has random weights, which take as long; without --images the images are drawn creatures. Needs the extra onnx.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from newkinds.assigners.extension import Extension
from newkinds.data.creatures import drawing
from newkinds.data.folder import files_of
from newkinds.data.images import open_image
from newkinds.discovery.export.graph import Answer, Classifier, capture
from newkinds.discovery.export.onnx import session, write_graph
from newkinds.encoders import backbones
from newkinds.runs.config import resolve
from newkinds.runs.protocol import describe_device
from newkinds.text import text_table
from newkinds.training.model import Model, build_model

VIT = "vit_small_patch14_dinov2"
KNOWN, K = 10, 20
Clock = Callable[[], float]


def model_of(
    backbone: str, weights: str | None, size: int | None, organizer: str, images: list[Any]
) -> tuple[Model, Tensor]:
    """A model whose categories were found in the images, and these as it wants them: (n, 3, H, W) between 0 and 1."""
    settings = {"name": backbone, "weights": weights, "image_size": size}
    config = resolve({
        "data": {"name": "creatures"}, "k": K, "backbone": settings, "organizer": {"name": organizer},
        "train": {"epochs": 0},
    })  # fmt: skip
    if backbone != backbones.TINY and weights is None:
        vars(backbones)["load_weight_file"] = lambda network, file: None  # random ones
        vars(backbones)["weights_file"] = lambda name, weights: None
    model = build_model(config, [f"kind {i}" for i in range(KNOWN)], K).eval()
    preprocessing = model.encoder.backbone.preprocessing
    views = torch.stack([preprocessing.centre_view(preprocessing.resize(image)) for image in images])
    with torch.inference_mode():
        features = torch.cat([model.encoder(preprocessing.normalise(some)).feature for some in views.split(16)])
    labels = torch.arange(len(images)) % K
    labels[labels >= KNOWN] = -1
    model.find_categories(features, labels, seed=0)
    model.calibrate(features, labels, seed=0)
    return model, views.float() / 255


def rate(compute: Callable[[Tensor], Any], images: Tensor, batch: int, seconds: float, clock: Clock) -> float:
    """Images per second."""
    done, started = 0, clock()
    while clock() - started < seconds:
        for some in images.split(batch):
            if len(some) == batch:
                compute(some)
                done += batch
            if clock() - started >= seconds:
                break
    return done / (clock() - started)


def compare(
    name: str, model: Model, images: Tensor, batches: list[int], rounds: int, seconds: float, clock: Clock
) -> list[list[str]]:
    """A row per batch size; of the rounds, which go by turns, the best counts: what else the machine does only adds."""
    lens = SimpleNamespace(names={number: str(number) for number in range(K)}, steps=[])
    extension = Extension(model.calibration, model.calibration.centres[:0])
    unedited: Any = SimpleNamespace(model=model, lens=lens, ids=np.arange(K), extension=extension)
    classifier = Classifier(unedited)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        write_graph(capture(classifier, images.shape[-1]), file, {})
        by_onnx = session(file)
        size = file.stat().st_size / 1e6

        @torch.inference_mode()
        def by_torch(some: Tensor) -> Answer:
            return classifier(some)

        expected, found = by_torch(images), Answer(*map(torch.as_tensor, by_onnx(images)))
        differ = int((expected.category != found.category).sum())
        most = max(float((a - b).abs().max()) for a, b in ((expected[i], found[i]) for i in (1, 3)))
        rows = []
        for batch in batches:
            best = {"torch": 0.0, "onnx": 0.0}
            for _ in range(rounds):
                for way, compute in (("torch", by_torch), ("onnx", by_onnx)):
                    best[way] = max(best[way], rate(compute, images, batch, seconds, clock))
            rows.append([
                f"{name}, batch {batch}", f"{best['torch']:.1f}", f"{best['onnx']:.1f}",
                f"{best['onnx'] / best['torch']:.2f}", f"{size:.1f}", f"{differ} of {len(images)}", f"{most:.0e}",
            ])  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", help=f"file of {VIT} (default: random weights)")
    parser.add_argument("--size", type=int, default=112, help="pixels of the ViT's images")
    parser.add_argument("--organizer", default="cpf")
    parser.add_argument("--images", nargs="+", help="files or folders (default: drawn creatures)")
    parser.add_argument("--count", type=int, default=100, help="images that are taken")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--cpu-time", action="store_true", help="of the processor, on a busy machine; one thread only")
    given = parser.parse_args()
    if given.cpu_time and given.threads > 1:
        parser.error("--cpu-time counts the time of all threads: add --threads 1")
    clock = time.process_time if given.cpu_time else time.perf_counter
    torch.set_num_threads(given.threads)
    if given.images:
        images = [open_image(file) for file in files_of(given.images, [])[: given.count]]
    else:
        from PIL import Image

        kinds = drawing.kinds(K, 0, "evaluated")
        drawn = (drawing.draw_creature(kinds[i % K], np.random.default_rng(i), 128)[0] for i in range(given.count))
        images = list(map(Image.fromarray, drawn))
    rows = []
    for backbone, weights, size in ((backbones.TINY, None, None), (VIT, given.weights, given.size)):
        model, views = model_of(backbone, weights, size, given.organizer, images)
        name = f"{backbone}, {views.shape[-1]} px, {given.organizer}"
        rows += compare(name, model, views, given.batch, given.rounds, given.seconds, clock)
    columns = [
        "images per second",
        "torch",
        "onnxruntime",
        "ratio",
        "MB",
        "other categories",
        "probabilities differ by",
    ]
    print(text_table(columns, rows))
    print(f"\n{describe_device(torch.device('cpu'))}; torch {torch.__version__}")


if __name__ == "__main__":
    main()
