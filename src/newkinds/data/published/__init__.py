"""Data sets with ground truth, split into labelled and unlabelled images the way the field does: benchmarks.yaml
describes them, one file per family reads them, and `base.py` is what they share."""

from pathlib import Path

import yaml

from .aircraft import read_aircraft
from .base import BENCHMARKS, Benchmark, load_test_images, register
from .cars import read_cars
from .cifar import read_cifar10, read_cifar100
from .class_folders import read_herbarium19, read_imagenet100
from .cub import read_cub

__all__ = ["BENCHMARKS", "Benchmark", "load_test_images"]

_readers = (read_aircraft, read_cars, read_cifar10, read_cifar100, read_cub, read_herbarium19, read_imagenet100)
READERS = {read.__name__.removeprefix("read_"): read for read in _readers}

_described = yaml.safe_load(Path(__file__).with_name("benchmarks.yaml").read_text(encoding="utf-8"))
for _name, _description in _described.items():
    register(Benchmark(name=_name, read=READERS[_name], **_description))
