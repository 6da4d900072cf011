"""Miniature copies of the benchmark data sets, in the layouts of their owners."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

from conftest import save_image
from newkinds.data import Table, load_table
from newkinds.data.published.classes import read_class_list

BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


def jpeg(colour: tuple[int, int, int] = (90, 120, 40)) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(data, "JPEG")
    return data.getvalue()


GREEN = jpeg()


def put(path: Path, content: bytes | str = GREEN) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lay_out_cub(root: Path, classes: int = 200) -> Path:
    """Three images a class; the first is a test image."""
    folder = root / "CUB_200_2011"
    names = [f"{c:03d}.Bird_{c}" for c in range(1, classes + 1)]
    images = [f"{name}/{name[4:]}_{i}.jpg" for name in names for i in range(3)]
    numbered = enumerate(images, start=1)
    put(folder / "classes.txt", "".join(f"{c} {name}\n" for c, name in enumerate(names, start=1)))
    put(folder / "images.txt", "".join(f"{n} {image}\n" for n, image in numbered))
    put(folder / "image_class_labels.txt", "".join(f"{n + 1} {n // 3 + 1}\n" for n in range(len(images))))
    put(folder / "train_test_split.txt", "".join(f"{n + 1} {int(n % 3 > 0)}\n" for n in range(len(images))))
    for image in images:
        put(folder / "images" / image)
    return folder


def lay_out_birds(root: Path) -> None:
    """CUB's layout with images that differ."""
    lay_out_cub(root)
    for image in root.rglob("*.jpg"):
        save_image(image, size=(16, 16))


def car_rows(classes: int = 196) -> list[dict[str, object]]:
    """Two training images and a test image of each class, in an order of their own; no two have the same box."""
    rows = [
        {"class": i % classes + 1, "test": int(i >= 2 * classes), **dict(zip(BOX, (i, 2, 30, 40), strict=True))}
        for i in range(3 * classes)
    ]
    return [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]


def save_annotations(file: Path, rows: list[dict[str, object]], **more: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    annotations = np.empty((1, len(rows)), dtype=[(name, object) for name in rows[0]])
    annotations[0] = [tuple(row.values()) for row in rows]
    savemat(file, {"annotations": annotations, **more})


def car_names(classes: int = 196) -> np.ndarray:
    names = np.empty((1, classes), dtype=object)
    names[0] = [f"Car {c}" for c in range(1, classes + 1)]
    return names


def lay_out_cars(root: Path) -> Path:
    """The devkit and its two folders of images; red is the box's first number."""
    folder = root / "stanford_cars"
    savemat(put(folder / "devkit" / "cars_meta.mat"), {"class_names": car_names()})
    for part, test, file in (
        ("train", 0, "devkit/cars_train_annos.mat"),
        ("test", 1, "cars_test_annos_withlabels.mat"),
    ):
        rows = [row for row in car_rows() if row["test"] == test]
        rows = [{**row, "fname": f"{i:05d}.jpg"} for i, row in enumerate(rows, start=1)]
        save_annotations(folder / file, [{k: v for k, v in row.items() if k != "test"} for row in rows])
        for row in rows:
            put(folder / f"cars_{part}" / str(row["fname"]), jpeg((int(str(row["bbox_x1"])) % 256, 0, 0)))
    return folder


def lay_out_repackaged_cars(root: Path) -> Path:
    """The same images under other names, sorted by class."""
    folder = root / "stanford_cars"
    rows = sorted(car_rows(), key=lambda row: (row["class"], row["test"]))
    rows = [{"relative_im_path": f"car_ims/{i:06d}.jpg", **row} for i, row in enumerate(rows, start=1)]
    save_annotations(folder / "cars_annos.mat", rows, class_names=car_names())
    for row in rows:
        put(folder / str(row["relative_im_path"]), jpeg((int(str(row["bbox_x1"])) % 256, 0, 0)))
    return folder


def lay_out_aircraft(root: Path) -> Path:
    """Three images a variant, listed by number; the last is a test image."""
    folder = root / "fgvc-aircraft-2013b" / "data"
    variants = [f"Plane {v}-{100 + v}" for v in range(100)]
    put(folder / "variants.txt", "".join(f"{name}\n" for name in reversed(variants)))
    lines = [f"{1000000 + i} {variants[7 * i % 100]}\n" for i in range(300)]
    put(folder / "images_variant_trainval.txt", "".join(lines[:200]))
    put(folder / "images_variant_test.txt", "".join(lines[200:]))
    for line in lines:
        put(folder / "images" / f"{line.split()[0]}.jpg")
    return folder


def cifar_batch(images: int, classes: int, labels: str, seed: int = 0) -> bytes:
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (images, 3072), dtype=np.uint8)
    numbers = rng.permutation(np.arange(images) % classes).tolist()
    return pickle.dumps({"data": pixels, labels: numbers, "batch_label": b"mini"}, protocol=2)


def lay_out_cifar10(root: Path) -> Path:
    folder = root / "cifar-10-batches-py"
    put(folder / "batches.meta", pickle.dumps({"label_names": [f"thing {c}" for c in range(10)]}, protocol=2))
    for i in range(1, 6):
        put(folder / f"data_batch_{i}", cifar_batch(20, 10, "labels", seed=i))
    put(folder / "test_batch", cifar_batch(10, 10, "labels"))
    return folder


def lay_out_cifar100(root: Path) -> Path:
    folder = root / "cifar-100-python"
    put(folder / "meta", pickle.dumps({"fine_label_names": [f"thing {c}" for c in range(100)]}, protocol=2))
    put(folder / "train", cifar_batch(400, 100, "fine_labels"))
    put(folder / "test", cifar_batch(100, 100, "fine_labels", seed=1))
    return folder


def lay_out_imagenet(root: Path) -> Path:
    """The listed classes and one that is not among them."""
    folder = root / "imagenet"
    for name in [*read_class_list("imagenet100").class_names, "n00000000"]:
        for i in range(3):
            put(folder / "train" / name / f"{name}_{i}.JPEG")
        put(folder / "val" / name / f"{name}.JPEG")
    return folder


def lay_out_herbarium(root: Path) -> Path:
    """Folders are numbers, so their order as text is not their order as numbers."""
    folder = root / "herbarium_19"
    for c in range(683):
        for i in range(2):
            put(folder / "small-train" / str(c) / f"{i}.jpg")
        put(folder / "small-validation" / str(c) / "0.jpg")
    return folder


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "cub": lay_out_cub,
    "cars": lay_out_cars,
    "aircraft": lay_out_aircraft,
    "cifar10": lay_out_cifar10,
    "cifar100": lay_out_cifar100,
    "imagenet100": lay_out_imagenet,
    "herbarium19": lay_out_herbarium,
}


def load(name: str, root: Path, **settings: object) -> Table:
    """The table of a data set below `root`."""
    return load_table({"name": name, "root": str(root), **settings})
