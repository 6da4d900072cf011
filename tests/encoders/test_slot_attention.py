"""ConGCD-style slots against plain loops, and what its losses promise."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from newkinds.encoders.organizers.slot_attention import Decoder, Slots, dominant_of, imbalance, places
from newkinds.encoders.tokens import Tokens
from newkinds.errors import NewkindsError

GRID, DIM, COUNT, WIDTH = (2, 3), 8, 5, 7


def build(**settings: object) -> Slots:
    torch.manual_seed(0)
    organizer = Slots(DIM, **{"count": COUNT, "decoder_width": WIDTH, **settings}).double()
    for parameter in organizer.router[2].parameters():  # it starts at 0, and a router that is even hides mistakes
        torch.nn.init.normal_(parameter)
    return organizer


def some_tokens(images: int = 3, grid: tuple[int, int] = GRID) -> Tokens:
    generator = torch.Generator().manual_seed(1)
    patches = 2.5 * torch.randn(images, grid[0] * grid[1], DIM, generator=generator, dtype=torch.float64)
    return Tokens(torch.randn(images, DIM, generator=generator, dtype=torch.float64), patches, grid)


# --- plain loops -----------------------------------------------------------------------------------------


def gru_by_hand(gru: torch.nn.GRUCell, news: Tensor, before: Tensor) -> Tensor:
    of_news, of_before = (
        weight @ given + bias
        for weight, given, bias in ((gru.weight_ih, news, gru.bias_ih), (gru.weight_hh, before, gru.bias_hh))
    )
    reset, update = (torch.sigmoid(of_news[part] + of_before[part]) for part in (slice(0, DIM), slice(DIM, 2 * DIM)))
    fresh = torch.tanh(of_news[2 * DIM :] + reset * of_before[2 * DIM :])
    return (1 - update) * fresh + update * before


def slots_by_loops(organizer: Slots, patches: Tensor) -> tuple[Tensor, Tensor]:
    x = torch.stack([(t - t.mean()) / (t.var(unbiased=False) + 1e-5).sqrt() for t in patches])
    keys, values = x @ organizer.k.weight.T, x @ organizer.v.weight.T
    slots = list(organizer.queries)
    for _ in range(organizer.iterations):
        queries = [organizer.q.weight @ organizer.norm(slot) for slot in slots]
        shares = torch.stack([torch.stack([q @ key for q in queries]) / math.sqrt(DIM) for key in keys]).softmax(dim=1)
        for k in range(COUNT):
            won = sum(shares[i, k] * values[i] for i in range(len(x))) / shares[:, k].sum()
            slots[k] = gru_by_hand(organizer.gru, won, slots[k])
            slots[k] = slots[k] + organizer.mlp(organizer.norm_mlp(slots[k]))
    return torch.stack(slots), shares


@pytest.mark.parametrize("iterations", [1, 3])
def test_feature_and_slots_by_loops(iterations: int) -> None:
    organizer, tokens = build(iterations=iterations), some_tokens()
    encoded = organizer.organize(tokens, details=True)
    for image in range(3):
        cls = tokens.cls[image]
        slots, shares = slots_by_loops(organizer, tokens.patches[image])
        torch.testing.assert_close(encoded.slots[image], slots)
        torch.testing.assert_close(encoded.field[image], shares)
        scores = [(cls @ slot).item() / math.sqrt(DIM) for slot in slots]
        top = sorted(range(COUNT), key=lambda k: -scores[k])[: COUNT // 2]
        weights = [math.exp(scores[k]) / sum(math.exp(scores[j]) for j in top) for k in top]
        dominant = sum(w * slots[k] for w, k in zip(weights, top, strict=True))
        contextual = sum(slots) / COUNT
        g = organizer.router(torch.cat([cls, dominant, contextual])).softmax(dim=0)
        torch.testing.assert_close(encoded.feature[image], cls + g[0] * dominant + g[1] * contextual)


def test_the_decoder_by_loops() -> None:
    torch.manual_seed(0)
    decoder, slots = Decoder(DIM, WIDTH).double(), torch.randn(2, COUNT, DIM, dtype=torch.float64)
    decoded = decoder(slots, GRID)
    where = places(GRID, slots)
    for image in range(2):
        for i in range(6):
            hidden = [F.gelu(decoder.of_slot(slot) + decoder.of_place.weight @ where[i]) for slot in slots[image]]
            mask = torch.stack([decoder.sure.weight[0] @ h for h in hidden]).softmax(dim=0)
            expected = sum(m * decoder.out(h) for m, h in zip(mask, hidden, strict=True))  # mixed after the last map
            torch.testing.assert_close(decoded[image, i], expected)


def test_losses_by_loops_and_their_warm_up() -> None:
    organizer, tokens = build(reconstruction=0.4, balance=0.3, warmup=4), some_tokens()
    encoded = organizer.organize(tokens)
    x = F.layer_norm(tokens.patches, (DIM,))
    lost = (organizer.decoder(encoded.slots, GRID) - x).square().mean().item()
    shares = torch.zeros(2, dtype=torch.float64)
    for cls, slots in zip(tokens.cls, encoded.slots, strict=True):
        units = [dominant_of(cls[None], slots[None])[0], slots.mean(dim=0)]
        shares += organizer.router(torch.cat([cls, *units])).softmax(dim=0) / 3
    divergence = sum(g * math.log(2 * g) for g in shares.tolist())
    for epoch, share in ((0, 0.25), (2, 0.75), (3, 1.0), (50, 1.0)):
        losses = organizer.loss(encoded, torch.tensor([-1, -1, -1]), epoch)
        assert losses["reconstruction"].item() == pytest.approx(0.4 * share * lost, abs=1e-12)
        assert losses["balance"].item() == pytest.approx(0.3 * divergence, abs=1e-12)


def test_places_are_shares_of_the_image() -> None:
    """Where patches lie in the middle of an image is told alike on a small and on a large grid."""
    small, large = places((1, 1), torch.zeros(1).double()), places((3, 5), torch.zeros(1).double())
    torch.testing.assert_close(large[7], small[0])
    row, column = 1.5 / 2, 0.5 / 3  # the place 3 of a grid of 2 × 3
    angles = [where * math.pi * 2**octave for where in (row, column) for octave in range(6)]
    expected = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
    assert places((2, 3), torch.zeros(1).double())[3].tolist() == pytest.approx(expected, abs=1e-12)
    assert len(torch.unique(places((9, 9), torch.zeros(1)), dim=0)) == 81


# --- behaviour -------------------------------------------------------------------------------------------


def test_gradients_reach_all_parameters_but_not_the_target() -> None:
    organizer, tokens = build(), some_tokens()
    patches = tokens.patches.clone().requires_grad_()
    encoded = organizer.organize(Tokens(tokens.cls, patches, GRID))
    (encoded.feature.square().sum() + sum(organizer.loss(encoded, torch.zeros(3), 0).values())).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in organizer.parameters())

    leaf = torch.randn(1, 6, DIM, dtype=torch.float64, requires_grad=True)
    constant = build()
    torch.nn.init.zeros_(constant.decoder.of_slot.weight)  # the decoded tokens no longer depend on the image
    loss = constant.organize(Tokens(tokens.cls[:1], leaf, GRID)).losses["reconstruction"]
    assert not torch.autograd.grad(loss, leaf)[0].any()


def test_reconstruction_falls_and_slots_come_apart() -> None:
    """Two kinds of tokens, left and right of each image."""
    kinds = torch.randn(2, DIM, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    patches = kinds[torch.tensor([0, 0, 1, 1]).repeat(4)].expand(6, -1, -1)
    tokens = Tokens(torch.randn(6, DIM, dtype=torch.float64), patches, (4, 4))
    organizer = build(count=2)
    optimizer, lost = torch.optim.Adam(organizer.parameters(), lr=0.01), []
    for _ in range(60):
        loss = organizer.organize(tokens).losses["reconstruction"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lost.append(loss.item())
    assert lost[-1] < 0.1 * lost[0]


def test_a_router_of_one_unit_costs_and_an_even_one_does_not() -> None:
    even = torch.full((4, 2), 0.5).log()
    assert imbalance(even).item() == pytest.approx(0, abs=1e-6)
    one = torch.tensor([[0.0, -500.0]]).repeat(4, 1).requires_grad_()
    loss = imbalance(one)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert one.grad is not None
    assert one.grad.isfinite().all()


def test_nothing_is_decoded_but_in_training_or_without_its_loss() -> None:
    tokens = some_tokens()
    assert set(build().organize(tokens).losses) == {"balance", "reconstruction"}
    assert build().eval().organize(tokens, details=True).losses == {}
    without = build(reconstruction=0.0)
    assert without.decoder is None
    assert set(without.organize(tokens).losses) == {"balance"}


@pytest.mark.parametrize("grid", [(1, 1), (1, 4), (5, 3)])
def test_any_grid_will_do(grid: tuple[int, int]) -> None:
    organizer, tokens = build(), some_tokens(grid=grid)
    encoded = organizer.organize(tokens, details=True)
    torch.testing.assert_close(encoded.field.sum(dim=2), torch.ones_like(encoded.field[..., 0]))
    assert encoded.feature.isfinite().all()
    assert all(loss.isfinite() for loss in encoded.losses.values())


@pytest.mark.parametrize("size", [1.0, 2.5], ids=["after a LayerNorm", "DINOv2"])
def test_the_feature_begins_near_the_class_token_and_slots_apart(size: float) -> None:
    torch.manual_seed(0)
    tokens = Tokens(size * torch.randn(4, 384), size * torch.randn(4, 196, 384), (14, 14))
    encoded = Slots(384).organize(tokens, details=True)
    assert 0.8 < (encoded.feature.norm(dim=1) / tokens.cls.norm(dim=1)).mean() < 1.3
    unit = F.normalize(encoded.slots, dim=2)
    assert ((unit @ unit.transpose(1, 2)).sum(dim=(1, 2)) - 8).mean() / 56 < 0.8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 0}, "organizer.count' must be a whole number of at least 1"),
        ({"iterations": 0}, "organizer.iterations' must be a whole number of at least 1"),
        ({"reconstruction": -0.1}, "organizer.reconstruction' must be a number of at least 0"),
        ({"warmup": -1}, "organizer.warmup' must be a whole number of at least 0"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(NewkindsError, match=message):
        Slots(DIM, **settings)
