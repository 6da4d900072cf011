"""Forms of CPF beyond the paper's: primitives kept apart, other starts, a fixed field, a loss of its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from newkinds.encoders.organizers.apart import Grid, KeptApart
from newkinds.encoders.organizers.cpf import CPF
from newkinds.encoders.tokens import Tokens

BATCH, GRID, DIM, PRIMITIVES = 6, (4, 5), 24, 4


@pytest.fixture
def tokens() -> Tokens:
    """Images made of four kinds of patches, each far from the others."""
    generator = torch.Generator().manual_seed(0)
    kinds = 4 * torch.randn(PRIMITIVES, DIM, generator=generator)
    kind = torch.randint(PRIMITIVES, (BATCH, GRID[0] * GRID[1]), generator=generator)
    patches = kinds[kind] + 0.1 * torch.randn(*kind.shape, DIM, generator=generator)
    return Tokens(torch.randn(BATCH, DIM, generator=generator), patches, GRID)


def build(**settings: object) -> CPF:
    torch.manual_seed(0)
    return CPF(DIM, **{"primitives": PRIMITIVES, "heads": 4, **settings})  # type: ignore[arg-type]


class TestKeptApart:
    def test_it_adds_nothing_at_first_and_its_formula_later(self) -> None:
        apart, slots = KeptApart(3, 8, rank=2).double(), torch.randn(5, 3, 8, dtype=torch.float64)
        assert not apart(slots).any()
        nn.init.normal_(apart.up)
        for image, decoded in zip(slots, apart(slots), strict=True):
            for slot in range(3):
                unit = (image[slot] - image[slot].mean()) / (image[slot].var(unbiased=False) + 1e-5).sqrt()
                torch.testing.assert_close(decoded[slot], unit @ apart.down[slot] @ apart.up[slot])

    @pytest.mark.parametrize("start", ["random", "tokens"])
    def test_cpf_starts_as_the_class_token(self, start: str, tokens: Tokens) -> None:
        cpf = build(readout="apart", start=start)
        cpf.start(tokens)
        torch.testing.assert_close(cpf.organize(tokens).feature, tokens.cls)

    def test_a_few_steps_move_every_part_of_it(self, tokens: Tokens) -> None:
        cpf = build(readout="apart")
        before = {name: p.detach().clone() for name, p in cpf.named_parameters()}
        optimizer, target = torch.optim.SGD(cpf.parameters(), lr=0.1), torch.randn(BATCH, DIM)
        for _ in range(3):
            optimizer.zero_grad()
            (cpf.organize(tokens).feature - target).square().mean().backward()
            optimizer.step()
        still = {name for name, p in cpf.named_parameters() if torch.equal(p, before[name])}
        assert still == {"alpha_prior", "alpha_data"}  # which weigh the field, that only the refined tokens need


class TestStarts:
    def test_primitives_begin_as_parts_that_occur(self, tokens: Tokens) -> None:
        cpf = build(start="tokens", normalise=True, prior_temperature=0.2)
        cpf.start(tokens)
        field = cpf(tokens.cls, tokens.patches, return_field=True)
        seen = torch.nn.functional.layer_norm(tokens.patches, (DIM,)).flatten(0, 1)
        nearest = torch.cdist(seen, cpf.base).argmin(1)
        for m in range(PRIMITIVES):  # each is the mean of the tokens that are nearest to it
            torch.testing.assert_close(cpf.base[m], seen[nearest == m].mean(0), atol=1e-4, rtol=1e-4)
        assert torch.equal(field.codebook, cpf.base.expand_as(field.codebook))
        # where a primitive's part occurs, it looks at nothing else
        own = field.prior.flatten(0, 1)[torch.arange(len(nearest)), nearest].unflatten(0, (BATCH, -1)).sum(1)
        assert (own > 0.99 * PRIMITIVES).all()

    def test_more_primitives_than_different_tokens(self) -> None:
        alike = Tokens(torch.zeros(2, DIM), torch.ones(2, 3, DIM), (1, 3))
        cpf = build(start="tokens")
        cpf.start(alike)
        assert torch.equal(cpf.base[0], torch.ones(DIM))
        assert cpf.organize(alike).feature.isfinite().all()

    def test_a_hypergraph_start_makes_the_codebook_mostly_the_images_own(self, tokens: Tokens) -> None:
        @torch.no_grad()
        def own(cpf: CPF) -> float:
            shift = cpf.codebook(tokens.patches, tokens.patches.mean(1)) - cpf.base
            return float(shift.norm() / (cpf.base.norm() * BATCH**0.5))

        assert own(build(start="hypergraph")) > 5 * own(build())

    @pytest.mark.parametrize("readout", ["literal", "delta", "gated"])
    def test_zero_start_adds_nothing_to_the_tokens_and_learns(self, readout: str, tokens: Tokens) -> None:
        cpf = build(zero_start=True, readout=readout)
        field = cpf(tokens.cls, tokens.patches, return_field=True)
        torch.testing.assert_close(field.tokens, tokens.patches)
        cpf.organize(tokens).feature.sum().backward()
        assert cpf.mlp2.weight.grad.any()


def test_norm_is_the_last_thing(tokens: Tokens) -> None:
    torch.testing.assert_close(
        build(norm=True).organize(tokens).feature,
        torch.nn.functional.layer_norm(build().organize(tokens).feature, (DIM,)),
    )


def test_reconstruction_is_the_mean_square_of_what_primitives_miss(tokens: Tokens) -> None:
    cpf = build(reconstruction=0.5)
    field = cpf(tokens.cls, tokens.patches, return_field=True)
    missed = [
        (tokens.patches[b, n] - sum(field.assignment[b, n, m] * field.primitives[b, m] for m in range(PRIMITIVES)))
        for b in range(BATCH)
        for n in range(GRID[0] * GRID[1])
    ]
    expected = 0.5 * torch.stack(missed).square().mean()
    torch.testing.assert_close(cpf.organize(tokens).losses["reconstruction"], expected)
    assert not cpf.eval().organize(tokens).losses
    assert not build().organize(tokens).losses


class TestSlots:
    @pytest.mark.parametrize("organizer", [Grid(DIM, 2, 2), CPF(DIM, 4, 4, readout="apart", train_field=False)])
    def test_what_is_read_from_slots_is_what_is_read_from_tokens(self, organizer: Grid | CPF, tokens: Tokens) -> None:
        assert organizer.fixed_slots
        nn.init.normal_(organizer.apart.up)
        feature = organizer.read_slots(tokens.cls, organizer.slots(tokens))
        torch.testing.assert_close(feature, organizer.organize(tokens).feature)
        assert not torch.allclose(feature, tokens.cls)

    def test_a_fixed_field_does_not_train(self) -> None:
        trained = {
            name.split(".")[0]
            for name, p in build(readout="apart", train_field=False).named_parameters()
            if p.requires_grad
        }
        assert trained == {"adapter", "apart", "alpha_prior", "alpha_data"}
        assert not build(readout="apart").fixed_slots
        assert not build(train_field=False).fixed_slots  # its tokens are read too

    def test_cells_of_the_grid(self) -> None:
        patches = torch.arange(16.0).reshape(1, 16, 1).expand(1, 16, DIM)
        cells = Grid(DIM, 2, 2).slots(Tokens(torch.zeros(1, DIM), patches, (4, 4)))
        assert cells[0, :, 0].tolist() == [2.5, 4.5, 10.5, 12.5]


def test_primitives_kept_apart_do_not_know_where_they_are_but_cells_do(tokens: Tokens) -> None:
    flipped = Tokens(tokens.cls, tokens.patches.flip(1), GRID)
    there, back = build(readout="apart").slots(tokens), build(readout="apart").slots(flipped)
    torch.testing.assert_close(there, back, atol=1e-4, rtol=1e-4)  # sums in another order
    assert not torch.allclose(Grid(DIM).slots(tokens), Grid(DIM).slots(flipped))
