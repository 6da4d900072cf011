"""From a weight file to a network: reading it safely, translating its names, refusing what does not fit."""

import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import NewkindsError

# What self-supervised training and classification leave in a file besides the backbone; not needed here.
HEAD_NAMES = re.compile(r"(\w*head\w*|fc|classifier|last_linear|pre_logits|mask_token|ibot\w*|decoder\w*)(\.|$)")
# DINOv2 saves its blocks in chunks: blocks.<chunk>.<block>. with the block counted through.
CHUNKED_BLOCK = re.compile(r"(^|\.)blocks\.\d+\.(\d+)\.")


def load_weights(network: nn.Module, file: Path) -> None:
    """Fill a timm network from `file`, in float32; every parameter must be found there, in its shape.

    The names may be those of timm, DINO, DINOv2 or whatever timm can convert, under any prefix and in any wrapper
    (`module.`, {"teacher": …}); a teacher is preferred to a student. Position embeddings are resized. Heads are left
    out.
    """
    state = _translate(read_tensors(file), network, network.state_dict())
    advice = "Choose the backbone they were made for (`newkinds list backbones`), or pass another file."
    fill(network, state, file, "the backbone", HEAD_NAMES, advice)


def fill(
    network: nn.Module, state: Mapping[str, Tensor], file: Path, what: str, unneeded: re.Pattern[str], advice: str
) -> None:
    """Put the tensors of `file` into a network; every one must have its place and shape there, but `unneeded` ones."""
    wanted = network.state_dict()
    require_finite(state, wanted, file)
    counters = [name for name in wanted if name.endswith("num_batches_tracked")]  # older files have none
    shapes = {name: (tuple(state[name].shape), tuple(wanted[name].shape)) for name in wanted if name in state}
    wrong = {
        f"of {len(wanted)} tensors are missing": [n for n in wanted if n not in state and n not in counters],
        "have another shape": [f"{n} is {has}, not {wants}" for n, (has, wants) in shapes.items() if has != wants],
        f"are unknown to {what}": [n for n in state if n not in wanted and not unneeded.match(n)],
    }
    reasons = [
        f"{len(names)} {what} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
        for what, names in wrong.items()
        if names
    ]
    if reasons:
        raise NewkindsError(
            f"the weights in {file} are of another architecture than {what}: {'; '.join(reasons)}. {advice}"
        )
    network.load_state_dict({name: state.get(name, value) for name, value in wanted.items()})


def read_tensors(file: Path) -> dict[str, Tensor]:
    """All tensors of a file, as float32 if floating, nested names joined by dots; a pickle of more is refused."""
    require_file(file)
    named = file.suffix == ".safetensors"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that a file is a program before it refuses to load it
            content = (
                safetensors.torch.load_file(file) if named else torch.load(file, map_location="cpu", weights_only=True)
            )
    except Exception as error:  # a damaged file can make the readers fail in any way
        raise NewkindsError(_unreadable(file, error)) from error
    try:
        tensors = dict(_flatten(content))
    except RecursionError:
        raise NewkindsError(f"{file} holds itself, so it is not a weight file; pass another one.") from None
    if odd := [name for name, value in tensors.items() if value.layout != torch.strided or value.is_meta]:
        raise NewkindsError(f"the tensor {odd[0]} in {file} is sparse or has no values: pass a file of plain weights.")
    if not tensors:
        raise NewkindsError(f"{file} holds no named tensors, so it is not a weight file; pass another one.")
    return {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}


def require_file(file: Path) -> None:
    """Refuse a weight file that is not there."""
    if file.is_dir():
        raise NewkindsError(f"{file} is a folder; pass the weight file in it (.safetensors, .pth, .bin).")
    if not file.exists():
        raise NewkindsError(f"there is no weight file {file}; check the path.")


def read_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors of a file by their names; of .safetensors no values are read."""
    if file.suffix == ".safetensors":
        with suppress(Exception), safetensors.safe_open(file, framework="pt") as content:
            return {name: tuple(content.get_slice(name).get_shape()) for name in content.keys()}  # noqa: SIM118
    return {name: tuple(value.shape) for name, value in read_tensors(file).items()}  # which says what is wrong with it


def require_finite(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor], file: Path) -> None:
    """Refuse tensors that stand for weights but hold whole numbers, NaN or infinity; the first is named."""
    for name in (name for name in wanted if name in state and wanted[name].is_floating_point()):
        if not state[name].is_floating_point():
            held = f"whole numbers ({state[name].dtype}), which are not weights"
        elif not bool(state[name].isfinite().all()):
            held = "values that are NaN or infinite"
        else:
            continue
        raise NewkindsError(f"the tensor {name} in {file} holds {held}: the file is damaged or not a weight file.")


def resize_position_embedding(embedding: Tensor, side: int) -> Tensor:
    """(1, P + s², D) → (1, P + side², D): P prefix tokens stay, the s × s grid is resized the way of DINO.

    Bicubic, and with the scale (side + 0.1) / s: DINO's guard against rounding, which also moves the sampling points a
    little. The published features for other image sizes include that.
    """
    old_side = math.isqrt(embedding.shape[1])
    prefix = embedding.shape[1] - old_side**2
    if old_side == side:
        return embedding
    grid = embedding[:, prefix:].unflatten(1, (old_side, old_side)).permute(0, 3, 1, 2)  # (1, D, s, s)
    scale = (side + 0.1) / old_side
    grid = F.interpolate(grid, scale_factor=(scale, scale), mode="bicubic")  # (1, D, side, side)
    return torch.cat([embedding[:, :prefix], grid.flatten(2).transpose(1, 2)], dim=1)


def _flatten(content: Any, prefix: str = "") -> Iterable[tuple[str, Tensor]]:
    """{"teacher": {"backbone.norm.weight": …}, "epoch": 3} → ("teacher.backbone.norm.weight", …)."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            if isinstance(value, Tensor):
                yield f"{prefix}{name}", value
            else:
                yield from _flatten(value, f"{prefix}{name}.")


def _translate(tensors: dict[str, Tensor], network: Any, wanted: Collection[str]) -> dict[str, Tensor]:
    """The part of a file that belongs to the backbone, under the names of timm."""
    if not any(CHUNKED_BLOCK.search(name) for name in wanted):  # EfficientNets have such names themselves
        tensors = {CHUNKED_BLOCK.sub(r"\1blocks.\2.", name): value for name, value in tensors.items()}
    state = without_prefix(tensors, wanted)
    has_positions = isinstance(getattr(network, "pos_embed", None), Tensor)
    positions = state.get("pos_embed")
    if has_positions and positions is not None and positions.ndim == 3 and positions.is_floating_point():
        state["pos_embed"] = resize_position_embedding(positions, network.patch_embed.grid_size[0])
    # Each model family of timm has its own converter, for files of the original authors.
    converter = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
    if converter is None:
        return state
    state, aside = _set_aside(state, wanted)
    with suppress(Exception):  # a file of another family: the comparison after this says what does not fit
        state = converter(dict(state), network)
    return {**state, **aside}


def _set_aside(state: Mapping[str, Tensor], wanted: Collection[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What goes through timm's converter, and what it would change or drop in silence and so must not see.

    It would resample the patch projection to another patch size, and drop the biases of DINOv3's attention if the
    network has none, which changes nothing only if those of queries and values are zero (the keys' cancel in the
    softmax).
    """
    through, aside = {}, {}
    for name, value in state.items():
        has_place = name in wanted or name.replace("qkv.bias", "q_bias") in wanted
        if name.endswith("attn.qkv.bias") and not has_place:
            query, _, values = value.chunk(3)
            if query.any() or values.any():
                aside[name] = value
        elif name == "patch_embed.proj.weight" and value.ndim == 4:
            aside[name] = value
        else:
            through[name] = value
    return through, aside


def without_prefix(tensors: Mapping[str, Tensor], wanted: Collection[str]) -> dict[str, Tensor]:
    """The tensors of a file that lie under the network's prefix in it, e.g. "teacher.module.backbone.", by the names
    that the network `wanted`."""
    prefix = _network_prefix(tensors, wanted)
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _network_prefix(names: Iterable[str], wanted: Collection[str]) -> str:
    """Each ending that the network knows votes for a prefix."""
    votes: Counter[str] = Counter()
    for name in names:
        parts = name.split(".")
        for start in range(len(parts)):
            if ".".join(parts[start:]) in wanted:
                votes["".join(f"{part}." for part in parts[:start])] += 1
    return max(votes, key=lambda prefix: (votes[prefix], "teacher" in prefix), default="")


def _unreadable(file: Path, error: Exception) -> str:
    """One message for each way in which a weight file can be bad."""
    if isinstance(error, OSError):
        return f"cannot read the weight file {file}: {error.strerror or error}."
    forbidden = re.search(r"GLOBAL (\S+)", str(error))
    program = "TorchScript" in str(error)  # such as the files that OpenAI published
    if forbidden or program:
        held = "a TorchScript program" if forbidden is None else f"the Python object {forbidden[1]}"
        return (
            f"{file} holds more than tensors ({held}) and is not loaded, as that "
            "could run code. If you trust it, save its state dict alone, as .safetensors or with torch.save."
        )
    return f"{file} is damaged or not a weight file; download or copy it again, and compare its size with the original."
