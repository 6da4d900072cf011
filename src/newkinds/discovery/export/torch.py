"""The model as weights and plain torch code that people can read: nothing of newkinds, and nothing pickled."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from safetensors.torch import load_file, save
from torch import Tensor

from ..._version import __version__
from ...files import make_folder, write_whole
from ..categories import Discovery
from .graph import Answer, capture
from .model_folder import prepare_export
from .torch_source import write_out

CODE, WEIGHTS = "model.py", "model.safetensors"
HEAD = '''\
"""A model, written out by newkinds {version} as the torch operations that it consists of, in their order.

Comments name the part of the model that the lines after them belong to. Weights are in model.safetensors, by the names
that they have there.
"""

import torch
from torch import Tensor

aten = torch.ops.aten


@torch.no_grad()
def classify(weights: dict[str, Tensor], images: Tensor) -> tuple[Tensor, ...]:
    """Of images (n, 3, {size}, {size}) between 0 and 1, on the device of the weights:
    {outputs}."""
'''


def write_torch(discovery: Discovery, target: Path, compare_on: Sequence[str | Path] = ()) -> str:
    """Make the folder `target`; see `EXPORTS`."""
    exported = prepare_export(discovery, compare_on)
    lines, tensors = write_out(capture(exported.classifier, exported.size))
    make_folder(target)
    write_whole(target / CODE, module_source(lines, exported.size))
    write_whole(target / WEIGHTS, save(tensors))
    classify, weights = import_classify(target / CODE), load_file(target / WEIGHTS)
    said = exported.compare(lambda some: classify(weights, some))
    exported.write_beside(target, "predict.py", "torch timm")
    return f"{WEIGHTS} ({(target / WEIGHTS).stat().st_size / 1e6:.1f} MB), {said}"


def module_source(lines: Sequence[str], size: int) -> str:
    """The module around the lines that `write_out` gives, for images of `size` pixels."""
    head = HEAD.format(version=__version__, size=size, outputs=", ".join(Answer._fields))
    return head + "".join(f"    {line}\n" for line in lines)


def import_classify(file: Path) -> Callable[[dict[str, Tensor], Tensor], tuple[Tensor, ...]]:
    """The function of a module that was written just now, as a script would import it."""
    spec = importlib.util.spec_from_file_location(f"_written_out_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    classify: Callable[[dict[str, Tensor], Tensor], tuple[Tensor, ...]] = module.classify
    return classify
