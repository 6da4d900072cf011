"""A batch that is encoded a few images at a time."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from conftest import small_heads
from covering import spread
from newkinds.data.batch import Batch, Pixels
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.tokens import Encoded
from newkinds.methods import METHODS, Progress
from newkinds.runs.config import resolve
from newkinds.training.model import Model, build_model
from newkinds.training.pieces import join_pieces
from newkinds.training.teacher import Teacher

# methods whose loss of a step needs nothing that was gathered before it, with all organizers in turns
ALONE = [name for name in METHODS if name in ("simgcd", "gcd", "legogcd", "mugcd", "uno", "sptnet", "protogcd")]
PAIRS = spread(ALONE, [list(ORGANIZERS)])
IMAGES = 7  # not a multiple of the pieces


def some_model(method: str, organizer: str) -> Model:
    small = small_heads(method, output_dim=64, projection_hidden=16)
    config = resolve(
        {"data": {"name": "creatures"}, "organizer": {"name": organizer}, "method": {"name": method, **small}}
    )
    model = build_model(config, ["a", "b"], 4).train()
    if model.method.teacher_momentum(Progress(0, 5)) is not None:
        model.teacher = Teacher(model.encoder, model.method)
    model.method.begin(torch.tensor([0, 1, 0, -1, -1, 1, -1]))
    return model


def some_batch(model: Model) -> Batch:
    generator = torch.Generator().manual_seed(0)
    plan = model.method.views

    def views(count: int) -> Pixels:
        return Pixels(torch.randint(256, (count * IMAGES, 3, 64, 64), dtype=torch.uint8, generator=generator))

    labels = torch.tensor([0, 1, 0, -1, -1, 1, -1])
    for_teacher = views(len(plan.teacher)) if plan.teacher else None
    return Batch(views(len(plan.student)), labels, torch.arange(IMAGES), for_teacher)


def gradients(model: Model, batch: Batch, at_once: int | None) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Of all parameters, and the random number that comes next."""
    model.zero_grad(set_to_none=True)
    model.micro_batch = at_once
    state = {name: value.clone() for name, value in model.named_buffers()}
    torch.manual_seed(3)
    model(batch, Progress(0, 5))["loss"].backward()
    for name, value in model.named_buffers():  # memories of a method
        value.copy_(state[name])
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return found, torch.rand(())


@pytest.mark.parametrize(("method", "organizer"), PAIRS)
def test_the_gradient_of_pieces_is_that_of_the_whole_batch(method: str, organizer: str) -> None:
    """Contrastive losses compare every image with all others of the batch; dropout is that of the batch too."""
    model = some_model(method, organizer)
    batch = some_batch(model)
    whole, next_number = gradients(model, batch, None)
    pieces, next_after_pieces = gradients(model, batch, 3)
    assert any(name.startswith("encoder.") for name in whole)
    assert whole.keys() == pieces.keys()
    largest = max(gradient.abs().max() for gradient in whole.values())
    for name, gradient in whole.items():
        torch.testing.assert_close(pieces[name], gradient, rtol=1e-4, atol=float(largest) * 1e-5, msg=name)
    assert next_number == next_after_pieces


def test_no_more_images_than_that_are_encoded_at_once() -> None:
    model = some_model("simgcd", "none")
    seen = []
    first = next(module for module in model.encoder.backbone.network.modules() if isinstance(module, nn.Conv2d))
    first.register_forward_hook(lambda *of_module: seen.append(len(of_module[1][0])))
    gradients(model, some_batch(model), 3)
    assert seen[:3] == [6, 6, 2]  # two views each
    assert max(seen) == 6


def test_rows_are_joined_view_by_view_and_numbers_are_means() -> None:
    rows = torch.arange(10).reshape(2, 5)  # two views of five images
    pieces = [
        Encoded(rows[:, some].flatten()[:, None].float(), grid=(2, 3), losses={"own": torch.tensor(float(value))})
        for some, value in ((slice(0, 3), 1), (slice(3, 5), 6))
    ]
    joined = join_pieces(pieces, [3, 2])
    assert joined.feature[:, 0].tolist() == list(range(10))
    assert joined.grid == (2, 3)
    assert joined.losses["own"] == 3
