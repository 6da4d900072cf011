"""The model as one ONNX graph, which runs with onnxruntime alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from ...console import silence
from ...errors import NewkindsError, reason_of
from ...files import json_text, make_folder
from ..categories import Discovery
from .graph import Answer, capture
from .model_folder import prepare_export

LARGEST = 1_900_000_000  # bytes of weights in the graph's own file, which a format of 2 GB holds; more lie beside it
MODEL = "model.onnx"


def write_onnx(discovery: Discovery, target: Path, compare_on: Sequence[str | Path] = ()) -> str:
    """Make the folder `target`; see `EXPORTS`."""
    _require_packages()
    exported = prepare_export(discovery, compare_on)
    make_folder(target)
    labels = {"labels": json_text(exported.labels, target / MODEL)}
    write_graph(capture(exported.classifier, exported.size), target / MODEL, labels)
    said = exported.compare(session(target / MODEL))
    exported.write_beside(target, "run_onnx.py", "onnxruntime numpy pillow")
    megabytes = sum(file.stat().st_size for file in target.glob(f"{MODEL}*")) / 1e6
    return f"{MODEL} ({megabytes:.1f} MB), {said}"


def write_graph(program: ExportedProgram, file: Path, about: Mapping[str, str]) -> None:
    """One file; `about` is what it says about itself."""
    try:
        with silence():
            made = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=["images"], output_names=list(Answer._fields),
                dynamic_shapes={"images": {0: "batch"}},
            )  # fmt: skip
            assert made is not None
    except Exception as error:  # nearly anything
        raise NewkindsError(
            f"this model cannot be written as ONNX by torch {torch.__version__}; a newer one may do it (pip install "
            f"--upgrade torch onnx onnxscript): {reason_of(error)[:300]}"
        ) from error
    for node in made.model.graph.all_nodes():
        node.metadata_props.clear()  # traces of the code, with paths of this machine
        node.doc_string = None
    made.model.metadata_props.clear()
    made.model.metadata_props.update(about)
    weights = sum(value.const_value.nbytes for value in made.model.graph.initializers.values() if value.const_value)
    made.save(file, external_data=weights > LARGEST)


def session(file: Path, threads: int = 0) -> Any:
    """A function from images (n, 3, H, W) to the outputs of a graph."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or torch.get_num_threads()
    runs = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda images: runs.run(list(Answer._fields), {"images": images.numpy()})


def _require_packages() -> None:
    for package in ("onnx", "onnxruntime", "onnxscript"):
        try:
            __import__(package)
        except ImportError:
            raise NewkindsError(
                f"writing ONNX needs the package {package}: pip install 'newkinds[onnx]', then run the same command."
            ) from None
