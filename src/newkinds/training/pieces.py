"""A batch that is encoded a few images at a time, with the gradient of the whole: the loss sees all features at once,
and what a piece needed on its way is computed again when its gradient is."""

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ..data.batch import Inputs
from ..data.world import chunks
from ..encoders.dropout import drawing_for

T = TypeVar("T")


def encode_in_pieces(
    encode: Callable[[Inputs], T], inputs: Inputs, images: int, at_once: int, of_batch: tuple[int, int] | None = None
) -> T:
    """What `encode` makes of views (V·B, …) of B images, in pieces of `at_once` images with all their views.

    Dropout is that of the whole batch: every piece draws it for all images, from the same random state. `of_batch`: how
    many images the batch has, and the place of the first of these in it, if other processes have the others.
    """
    whole, start = of_batch or (images, 0)
    if images <= at_once:
        if of_batch is None:
            return encode(inputs)
        with drawing_for(whole, slice(start, start + images)):
            return encode(inputs)

    from torch.utils.checkpoint import checkpoint  # slow to import with torch 2.6

    def encode_piece(rows: range) -> T:
        with drawing_for(whole, slice(start + rows.start, start + rows.stop)):
            return encode(_images(inputs, images, rows))

    pieces = chunks(images, at_once)
    device = inputs.values.device
    done = []
    for rows in pieces:
        with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=rows.stop < images):
            done.append(cast(T, checkpoint(encode_piece, rows, use_reentrant=False)))
    return join_pieces(done, [len(rows) for rows in pieces])


def _images(inputs: Inputs, images: int, rows: range) -> Inputs:
    """All views of some images."""
    of_images = inputs.values.unflatten(0, (-1, images))[:, rows.start : rows.stop]  # (V, b, …)
    return type(inputs)(of_images.flatten(0, 1))


def join_pieces(pieces: Sequence[T], sizes: Sequence[int]) -> T:
    """View-major rows (V·b, …) of each piece of so many images → (V·B, …); a single number is a mean over images."""

    def join(*parts: Tensor) -> Tensor:
        if parts[0].ndim == 0:
            return sum((part * size for part, size in zip(parts, sizes, strict=True)), parts[0] * 0) / sum(sizes)
        views = [part.unflatten(0, (-1, size)) for part, size in zip(parts, sizes, strict=True)]  # (V, b, …) each
        return torch.cat(views, dim=1).flatten(0, 1)

    return map_tensors(join, *pieces)


def map_tensors(function: Callable[..., Tensor], *values: Any) -> Any:
    """What a function makes of the tensors at each place of values that are built alike: of tuples, lists,
    dictionaries and dataclasses. Whatever else they hold is the first one's."""
    first = values[0]
    if isinstance(first, Tensor):
        return function(*values)
    if is_dataclass(first) and not isinstance(first, type):
        parts = ({field.name: getattr(value, field.name) for field in fields(value)} for value in values)
        return replace(first, **map_tensors(function, *parts))
    if isinstance(first, (list, tuple)):
        return type(first)(map_tensors(function, *items) for items in zip(*values, strict=True))
    if isinstance(first, dict):
        return {name: map_tensors(function, *(value[name] for value in values)) for name in first}
    return first
