"""The simple organizers; what every one promises is in tests/contracts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from newkinds.encoders.encoder import Encoder
from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.tokens import Tokens

BATCH, GRID, DIM = 3, (2, 4), 48
DROP_THE_CLASS_TOKEN = {"parts"}  # by default

each_organizer = pytest.mark.parametrize("name", list(ORGANIZERS))


def build(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return ORGANIZERS[name](DIM)


@pytest.fixture
def tokens() -> Tokens:
    generator = torch.Generator().manual_seed(0)
    patches = torch.randn(BATCH, GRID[0] * GRID[1], DIM, generator=generator)
    return Tokens(torch.randn(BATCH, DIM, generator=generator), patches, GRID)


@each_organizer
def test_the_class_token_gets_a_gradient_unless_it_is_dropped(name: str, tokens: Tokens) -> None:
    cls = tokens.cls.clone().requires_grad_()
    patches = tokens.patches.clone().requires_grad_()
    build(name).organize(Tokens(cls, patches, GRID)).feature.sum().backward()
    read = patches if name in DROP_THE_CLASS_TOKEN else cls
    assert (read.grad.flatten(1).abs().sum(dim=1) > 0).all()


@each_organizer
def test_encoder_runs_it(name: str, tokens: Tokens) -> None:
    class Backbone(nn.Module):
        dim = DIM

        def forward(self, images: Tensor, patches: bool = True) -> Tokens:
            return tokens

    encoder = Encoder(Backbone(), build(name))
    assert encoder.dim == DIM
    assert torch.equal(encoder(torch.zeros(BATCH, 3, 8, 8)).feature, encoder.organizer.organize(tokens).feature)


def test_controls_have_no_parameters_and_say_what_they_are(tokens: Tokens) -> None:
    assert not list(build("none").parameters())
    assert not list(build("patches").parameters())
    assert torch.equal(build("none").organize(tokens).feature, tokens.cls)
    rows = zip(tokens.cls, tokens.patches, strict=True)
    expected = torch.stack([cls + sum(patches) / len(patches) for cls, patches in rows])
    torch.testing.assert_close(build("patches").organize(tokens).feature, expected)


def test_the_adapter_starts_as_the_class_token_and_is_its_formula_later() -> None:
    adapter = ORGANIZERS["adapter"](8, rank=3).double()
    tokens = Tokens(torch.randn(4, 8, dtype=torch.float64), torch.empty(4, 0, 8), (0, 0))
    torch.testing.assert_close(adapter.organize(tokens).feature, tokens.cls)
    torch.nn.init.normal_(adapter.up.weight)
    for cls, feature in zip(tokens.cls, adapter.organize(tokens).feature, strict=True):
        normed = (cls - cls.mean()) / (cls.var(unbiased=False) + 1e-5).sqrt()
        expected = cls + adapter.up.weight @ (adapter.down.weight @ normed)
        torch.testing.assert_close(feature, expected)


def test_dropout_makes_two_views_of_one_class_token_differ_in_training_alone() -> None:
    adapter = ORGANIZERS["adapter"](64, dropout=0.2)
    tokens = Tokens(torch.ones(2, 64), torch.empty(2, 0, 64), (0, 0))
    first, second = adapter.organize(tokens).feature
    assert not torch.equal(first, second)
    first, second = adapter.eval().organize(tokens).feature
    assert torch.equal(first, second)
