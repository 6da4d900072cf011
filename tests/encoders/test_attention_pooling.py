"""`attention-pooling`, the control of CPF, and `cpf-attention`: CPF's codebook and field read in the same way."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from newkinds.encoders.organizers import ORGANIZERS
from newkinds.encoders.organizers.attention_pooling import AttentionPooling, CPFAttention
from newkinds.encoders.tokens import Tokens
from newkinds.errors import NewkindsError

BATCH, GRID, DIM, COUNT = 5, (3, 4), 16, 3


@pytest.fixture
def tokens() -> Tokens:
    """Images made of three kinds of patches, each far from the others."""
    generator = torch.Generator().manual_seed(0)
    kinds = 4 * torch.randn(COUNT, DIM, generator=generator)
    kind = torch.randint(COUNT, (BATCH, GRID[0] * GRID[1]), generator=generator)
    patches = kinds[kind] + 0.1 * torch.randn(*kind.shape, DIM, generator=generator)
    return Tokens(torch.randn(BATCH, DIM, generator=generator).double(), patches.double(), GRID)


def build(**settings: object) -> AttentionPooling:
    """`cpf-attention` if its settings are asked for; its maps are not at their start, so that they can be seen."""
    torch.manual_seed(0)
    if settings.keys() & {"codebook", "field"}:
        organizer: AttentionPooling = CPFAttention(DIM, COUNT, rank=2, **settings)  # type: ignore[arg-type]
    else:
        organizer = AttentionPooling(DIM, COUNT, rank=2, **settings)  # type: ignore[arg-type]
    for name, parameter in organizer.named_parameters():
        if name.endswith(("up", "up.weight", "phi.1.weight")):
            torch.nn.init.normal_(parameter)
    return organizer.double()


def naive_feature(organizer: AttentionPooling, cls: torch.Tensor, patches: torch.Tensor) -> torch.Tensor:
    """One image with plain loops: (D,), (N, D) → (D,)"""
    x = [(patch - patch.mean()) / (patch.var(unbiased=False) + 1e-5).sqrt() for patch in patches]
    queries = list(organizer.queries)
    if getattr(organizer, "phi", None) is not None:
        stacked = torch.stack(x)
        shift = organizer.phi(torch.cat([stacked.mean(0), stacked.max(0).values])).view(COUNT, DIM)
        queries = [query + shift[m] for m, query in enumerate(queries)]
    scores = [[float(token @ query) / math.sqrt(DIM) for query in queries] for token in x]
    feature = organizer.adapter(cls[None])[0]
    for m in range(COUNT):
        if getattr(organizer, "field", False):  # a patch's share of a primitive, among all primitives
            parts = [math.exp(row[m]) / sum(math.exp(score) for score in row) for row in scores]
        else:
            parts = [math.exp(row[m]) for row in scores]
        slot = sum(part / sum(parts) * token for part, token in zip(parts, x, strict=True))
        feature = feature + F.layer_norm(slot, (DIM,)) @ organizer.maps.down[m] @ organizer.maps.up[m]
    return feature


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"codebook": True, "field": True},
        {"codebook": False, "field": True},
        {"codebook": True, "field": False},
    ],
)
def test_features_equal_plain_loops(settings: dict[str, bool], tokens: Tokens) -> None:
    organizer = build(**settings)
    with torch.no_grad():
        found = organizer.organize(tokens).feature
        for cls, patches, feature in zip(tokens.cls, tokens.patches, found, strict=True):
            torch.testing.assert_close(feature, naive_feature(organizer, cls, patches))


def test_without_codebook_and_field_cpf_read_by_attention_is_attention_pooling(tokens: Tokens) -> None:
    plain, cpf = build(), build(codebook=False, field=False, start="random")
    torch.testing.assert_close(cpf.organize(tokens).feature, plain.organize(tokens).feature)


@pytest.mark.parametrize("name", ["attention-pooling", "cpf-attention"])
def test_it_starts_as_the_class_token(name: str, tokens: Tokens) -> None:
    organizer = ORGANIZERS[name](DIM).double()
    organizer.start(tokens)
    torch.testing.assert_close(organizer.organize(tokens).feature, tokens.cls)


def test_queries_begin_as_kinds_of_patches_and_each_looks_at_its_own(tokens: Tokens) -> None:
    organizer = build(codebook=False, field=True)
    organizer.start(tokens)
    x = F.layer_norm(tokens.patches, (DIM,)).flatten(0, 1)
    nearest = torch.cdist(x, organizer.queries).argmin(1)
    for m in range(COUNT):
        torch.testing.assert_close(organizer.queries[m], x[nearest == m].mean(0), atol=1e-4, rtol=1e-4)
    field = organizer.organize(tokens, details=True).field
    assert field is not None
    assert torch.equal(field.flatten(0, 1).argmax(1), nearest)
    torch.testing.assert_close(field.sum(2), torch.ones_like(field[..., 0]))


def test_every_parameter_learns(tokens: Tokens) -> None:
    organizer = build(codebook=True, field=True)
    organizer.organize(tokens).feature.square().mean().backward()
    assert not [name for name, p in organizer.named_parameters() if p.grad is None or not p.grad.any()]


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(NewkindsError, match="queries"):
        AttentionPooling(DIM, queries=0)
    with pytest.raises(NewkindsError, match="primitives"):
        CPFAttention(DIM, primitives=0)
