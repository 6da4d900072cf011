"""`cpf-parts`: primitives that are parts of the images, each read by a map of its own; and `grid`, its control."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from newkinds.encoders.organizers.cpf_parts import CPFParts
from newkinds.encoders.organizers.grid_cells import Grid
from newkinds.encoders.organizers.slot_maps import SlotMaps
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


def build(**settings: object) -> CPFParts:
    torch.manual_seed(0)
    return CPFParts(DIM, **{"primitives": PRIMITIVES, "heads": 4, **settings})  # type: ignore[arg-type]


class TestSlotMaps:
    def test_it_adds_nothing_at_first_and_its_formula_later(self) -> None:
        maps, slots = SlotMaps(3, 8, rank=2).double(), torch.randn(5, 3, 8, dtype=torch.float64)
        assert not maps(slots).any()
        nn.init.normal_(maps.up)
        for image, decoded in zip(slots, maps(slots), strict=True):
            for slot in range(3):
                unit = (image[slot] - image[slot].mean()) / (image[slot].var(unbiased=False) + 1e-5).sqrt()
                torch.testing.assert_close(decoded[slot], unit @ maps.down[slot] @ maps.up[slot])

    @pytest.mark.parametrize("start", ["random", "tokens"])
    def test_cpf_starts_as_the_class_token(self, start: str, tokens: Tokens) -> None:
        cpf = build(start=start)
        cpf.start(tokens)
        torch.testing.assert_close(cpf.organize(tokens).feature, tokens.cls)

    def test_a_few_steps_move_every_part_of_it(self, tokens: Tokens) -> None:
        cpf = build(start="random", train_field=True)
        before = {name: p.detach().clone() for name, p in cpf.named_parameters()}
        optimizer, target = torch.optim.SGD(cpf.parameters(), lr=0.1), torch.randn(BATCH, DIM)
        for _ in range(3):
            optimizer.zero_grad()
            (cpf.organize(tokens).feature - target).square().mean().backward()
            optimizer.step()
        assert not [name for name, p in cpf.named_parameters() if torch.equal(p, before[name])]


class TestStarts:
    def test_primitives_begin_as_parts_that_occur(self, tokens: Tokens) -> None:
        cpf = build()
        cpf.start(tokens)
        field = cpf(tokens.cls, tokens.patches, return_field=True)
        seen = torch.nn.functional.layer_norm(tokens.patches, (DIM,)).flatten(0, 1)
        nearest = torch.cdist(seen, cpf.base).argmin(1)
        for m in range(PRIMITIVES):  # each is the mean of the tokens that are nearest to it
            torch.testing.assert_close(cpf.base[m], seen[nearest == m].mean(0), atol=1e-4, rtol=1e-4)
        assert torch.equal(field.codebook, cpf.base.expand_as(field.codebook))
        # where a primitive's part occurs, it looks at little else
        own = field.prior.flatten(0, 1)[torch.arange(len(nearest)), nearest].unflatten(0, (BATCH, -1)).sum(1)
        assert (own > 0.95 * PRIMITIVES).all()

    def test_more_primitives_than_different_tokens(self) -> None:
        alike = Tokens(torch.zeros(2, DIM), torch.ones(2, 3, DIM), (1, 3))
        cpf = build(normalise=False)
        cpf.start(alike)
        assert torch.equal(cpf.base[0], torch.ones(DIM))
        assert cpf.organize(alike).feature.isfinite().all()


class TestSlots:
    @pytest.mark.parametrize("organizer", [Grid(DIM, 2, 2), CPFParts(DIM, 4, 4)])
    def test_what_is_read_from_slots_is_what_is_read_from_tokens(
        self, organizer: Grid | CPFParts, tokens: Tokens
    ) -> None:
        assert organizer.fixed_slots
        nn.init.normal_(organizer.maps.up)
        feature = organizer.read_slots(tokens.cls, organizer.slots(tokens))
        torch.testing.assert_close(feature, organizer.organize(tokens).feature)
        assert not torch.allclose(feature, tokens.cls)

    def test_a_fixed_field_does_not_train(self) -> None:
        trained = {name.split(".")[0] for name, p in build().named_parameters() if p.requires_grad}
        assert trained == {"adapter", "maps"}
        assert not build(train_field=True).fixed_slots

    def test_cells_of_the_grid(self) -> None:
        patches = torch.arange(16.0).reshape(1, 16, 1).expand(1, 16, DIM)
        cells = Grid(DIM, 2, 2).slots(Tokens(torch.zeros(1, DIM), patches, (4, 4)))
        assert cells[0, :, 0].tolist() == [2.5, 4.5, 10.5, 12.5]


def test_primitives_kept_apart_do_not_know_where_they_are_but_cells_do(tokens: Tokens) -> None:
    flipped = Tokens(tokens.cls, tokens.patches.flip(1), GRID)
    there, back = build().slots(tokens), build().slots(flipped)
    torch.testing.assert_close(there, back, atol=1e-4, rtol=1e-4)  # sums in another order
    assert not torch.allclose(Grid(DIM).slots(tokens), Grid(DIM).slots(flipped))
