"""The model as a folder that needs no newkinds: for onnxruntime, and for torch."""

from collections.abc import Sequence
from pathlib import Path

from ..categories import Discovery
from .base import EXPORTS


@EXPORTS.register("onnx")
def to_onnx(discovery: Discovery, target: Path, *, compare_on: Sequence[str | Path] = ()) -> str:
    """The model as one ONNX graph, with a script that needs onnxruntime, numpy and Pillow alone."""
    from .onnx import write_onnx

    return write_onnx(discovery, target, compare_on)


@EXPORTS.register("torch")
def to_torch(discovery: Discovery, target: Path, *, compare_on: Sequence[str | Path] = ()) -> str:
    """The model as weights and plain torch code, with a script of ten lines that needs torch and timm alone."""
    from .torch import write_torch

    return write_torch(discovery, target, compare_on)
