"""CPF against the paper's own order of operations, and against what its formulas promise."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from newkinds.encoders.organizers.cpf import CPF, Field, PrimitiveField
from newkinds.encoders.organizers.cpf_parts import CPFParts
from newkinds.encoders.organizers.query_attention import QueryAttention
from newkinds.encoders.tokens import Tokens
from newkinds.errors import NewkindsError
from plain_cpf import PlainCPF, PlainCPFParts, attend

BATCH, TOKENS, DIM, PRIMITIVES, HEADS = 3, 10, 24, 5, 4  # all different, so that a mixed-up axis cannot go unseen

VARIANTS = [
    {},
    {"readout": "delta"},
    {"readout": "gated"},
    {"phi_rank": None},
    {"phi_rank": 7},
    {"learn_alpha": False},
    {"use_prior": False},
    {"use_data": False},
    {"data_temperature": 0.1},
    {"primitives": 1, "heads": 1},
]


PARTS = [{"rank": 6}, {"train_field": True}, {"normalise": False, "train_field": True}]
Form = tuple[type[PrimitiveField], type[PrimitiveField], dict]  # as shipped, in the paper's order, and settings
FORMS: list[Form] = [
    *((CPF, PlainCPF, settings) for settings in VARIANTS),
    *((CPFParts, PlainCPFParts, settings) for settings in PARTS),
]


def variant_name(settings: dict) -> str:
    return " ".join(f"{key}={value}" for key, value in settings.items()) or "default"


def form_name(form: Form) -> str:
    return f"{form[0].__name__} {variant_name(form[2])}"


each_form = pytest.mark.parametrize("form", FORMS, ids=form_name)
each_variant = pytest.mark.parametrize("settings", VARIANTS, ids=variant_name)


def build(settings: dict | None = None, kind: type[PrimitiveField] = CPF) -> Any:
    """A small CPF in double precision, with parameters large enough that each of them matters to the result."""
    torch.manual_seed(0)
    cpf = kind(DIM, **{"primitives": PRIMITIVES, "heads": HEADS, **(settings or {})}).double()
    for parameter in cpf.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=1.5 * parameter.shape[1] ** -0.5)
        else:
            nn.init.uniform_(parameter, 0.5, 1.5)
    return cpf


@pytest.fixture
def cls() -> Tensor:
    return torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.fixture
def patches() -> Tensor:
    return torch.randn(BATCH, TOKENS, DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def field_of(cpf: PrimitiveField, cls: Tensor, patches: Tensor) -> Field:
    field = cpf(cls, patches, return_field=True)
    assert isinstance(field, Field)
    return field


def gradients(cpf: PrimitiveField, cls: Tensor, patches: Tensor, return_field: bool) -> dict[str, Tensor]:
    """Gradients of a random weighting of all outputs, by parameter name and for both inputs."""
    inputs = {"cls": cls.clone().requires_grad_(), "patches": patches.clone().requires_grad_()}
    output = cpf(**inputs, return_field=return_field)
    generator = torch.Generator().manual_seed(3)
    parts = output if return_field else (output,)
    loss = sum((part * torch.randn(part.shape, generator=generator, dtype=part.dtype)).sum() for part in parts)
    trained = [(name, p) for name, p in cpf.named_parameters() if p.requires_grad]
    names, leaves = zip(*inputs.items(), *trained, strict=True)
    return dict(zip(names, torch.autograd.grad(loss, leaves), strict=True))


def gelu_by_hand(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


class TestAgainstThePlainOrder:
    @each_form
    def test_values(self, form: Form, cls: Tensor, patches: Tensor) -> None:
        fast, plain, settings = form
        expected = field_of(build(settings, plain), cls, patches)
        for name, got in field_of(build(settings, fast), cls, patches)._asdict().items():
            torch.testing.assert_close(got, getattr(expected, name), rtol=1e-9, atol=1e-9, msg=name)

    @each_form
    @pytest.mark.parametrize("return_field", [False, True], ids=["feature", "field"])
    def test_gradients(self, form: Form, return_field: bool, cls: Tensor, patches: Tensor) -> None:
        fast, plain, settings = form
        expected = gradients(build(settings, plain), cls, patches, return_field)
        got = gradients(build(settings, fast), cls, patches, return_field)
        assert got.keys() == expected.keys()
        for name, gradient in got.items():
            torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-8, msg=name)

    def test_plain_order_by_hand(self) -> None:
        """The oracle itself: one image of two tokens with one feature, one primitive, every weight 1."""
        cpf = PlainCPF(1, primitives=1, heads=1, phi_rank=None).double()
        for name, parameter in cpf.named_parameters():
            nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)
        field = field_of(cpf, torch.tensor([[10.0]]).double(), torch.tensor([[[0.0], [1.0]]]).double())

        # P = 1 + 0.5 + 1, so the scores are 0 and 2.5, and P0 = A_prior of the second token
        p0 = 1 / (1 + math.exp(-2.5))
        # its attention to the tokens 0 and 1 has scores 0 and P0; alone, a primitive attends to itself
        p2 = p0 + 1 / (1 + math.exp(-p0))
        assert field.primitives.item() == pytest.approx(p2)
        # one primitive owns every token
        message = gelu_by_hand(gelu_by_hand(p2))
        assert field.tokens.flatten().tolist() == pytest.approx([message, 1 + message])
        assert field.feature.item() == pytest.approx(10 + 0.5 + message)

    @pytest.mark.parametrize("dim", [24, 768], ids=["tokens projected", "tokens probed"])
    def test_the_cheaper_order_is_taken(self, dim: int) -> None:
        """A further token costs 2·D·M·(3 + 2H) operations, nothing that grows with D², or, if that is less, its own
        key and value."""

        def flops(tokens: int) -> int:
            cpf = CPF(dim, primitives=12, heads=12)
            with FlopCounterMode(display=False) as counter:
                cpf(torch.zeros(1, dim), torch.zeros(1, tokens, dim))
            return counter.get_total_flops()

        shared = 3 * 2 * dim * 12  # prior, pooling, decoding
        probed, projected = 2 * 2 * dim * 12 * 12, 2 * 2 * dim * (dim + 12)
        assert flops(201) - flops(200) == shared + min(probed, projected)

    @pytest.mark.parametrize("dim", [24, 96], ids=["tokens projected", "tokens probed"])
    def test_both_orders_of_attention(self, dim: int) -> None:
        torch.manual_seed(0)
        attention = QueryAttention(dim, 4).double()
        queries, tokens = torch.randn(2, 5, dim), torch.randn(2, 40, dim)
        queries, tokens = queries.double().requires_grad_(), tokens.double().requires_grad_()
        for map_ in (attention.q, attention.k):
            nn.init.normal_(map_.weight)  # scores far enough apart that a wrong one shows

        expected, expected_weights = attend(attention, queries, tokens)
        messages, weights = attention(queries, tokens)
        torch.testing.assert_close((messages, weights), (expected, expected_weights))
        wanted = [queries, tokens, *attention.parameters()]
        torch.testing.assert_close(*(torch.autograd.grad(m.square().sum(), wanted) for m in (messages, expected)))


class TestFormulas:
    def test_shapes(self, cls: Tensor, patches: Tensor) -> None:
        field = field_of(build(), cls, patches)
        assert field.feature.shape == (BATCH, DIM)
        assert field.tokens.shape == (BATCH, TOKENS, DIM)
        assert field.assignment.shape == (BATCH, TOKENS, PRIMITIVES)
        assert field.primitives.shape == (BATCH, PRIMITIVES, DIM)

    @each_form
    def test_feature_is_the_same_without_the_field(self, form: Form, cls: Tensor, patches: Tensor) -> None:
        kind, _, settings = form
        cpf = build(settings, kind)
        feature = cpf(cls, patches)
        assert isinstance(feature, Tensor)
        assert torch.equal(feature, field_of(cpf, cls, patches).feature)

    def test_what_sums_to_one(self, cls: Tensor, patches: Tensor) -> None:
        cpf = build()
        prior = cpf.log_prior(patches, cpf.codebook(patches, patches.mean(1))).exp()  # (B, N, M)
        _, weights = cpf.update(prior.transpose(1, 2) @ patches, patches)  # (B, H, M, N)
        for sums in (
            prior.sum(dim=1),
            weights.sum(dim=3),
            cpf.log_data(weights).exp().sum(dim=2),
            field_of(cpf, cls, patches).assignment.sum(dim=2),
        ):
            torch.testing.assert_close(sums, torch.ones_like(sums))

    def test_literal_data_assignment_spreads_over_one_nat_at_most(self) -> None:
        cpf = build()
        weights = torch.zeros(1, HEADS, PRIMITIVES, TOKENS, dtype=torch.float64)
        weights[:, :, :, 1] = 1  # all primitives look at one token only
        weights[:, :, 0] = torch.eye(TOKENS, dtype=torch.float64)[0]  # but the first looks at another: the worst case
        log_data = cpf.log_data(weights)  # (1, N, M)
        spread = log_data.amax(dim=2) - log_data.amin(dim=2)
        assert spread.max().item() == pytest.approx(1)
        cpf.data_temperature = 0.1
        assert (cpf.log_data(weights)[0, 0, 0] - cpf.log_data(weights)[0, 0, 1]).item() == pytest.approx(10)

    def test_token_order_does_not_matter(self, cls: Tensor, patches: Tensor) -> None:
        cpf, order = build(), torch.randperm(TOKENS, generator=torch.Generator().manual_seed(4))
        field, shuffled = field_of(cpf, cls, patches), field_of(cpf, cls, patches[:, order])
        torch.testing.assert_close(shuffled.tokens, field.tokens[:, order])
        torch.testing.assert_close(shuffled.assignment, field.assignment[:, order])
        torch.testing.assert_close(shuffled.primitives, field.primitives)
        torch.testing.assert_close(shuffled.feature, field.feature)

    @pytest.mark.parametrize("readout", ["literal", "delta", "gated"])
    def test_silent_decoder_leaves_the_pooled_patches(self, readout: str, cls: Tensor, patches: Tensor) -> None:
        cpf = build({"readout": readout})
        nn.init.zeros_(cpf.mlp2.weight)
        nn.init.zeros_(cpf.mlp2.bias)
        share = {"literal": 1.0, "delta": 0.0, "gated": cpf.gate if readout == "gated" else None}[readout]
        torch.testing.assert_close(cpf(cls, patches), cls + share * patches.mean(dim=1))
        torch.testing.assert_close(field_of(cpf, cls, patches).tokens, patches)

    @pytest.mark.parametrize("settings", [{}, {"use_data": False}], ids=variant_name)
    def test_without_the_data_weight_attention_does_not_assign(
        self, settings: dict, cls: Tensor, patches: Tensor
    ) -> None:
        cpf = build(settings)
        nn.init.zeros_(cpf.alpha_data)
        before = field_of(cpf, cls, patches)
        nn.init.normal_(cpf.update.q.weight)
        after = field_of(cpf, cls, patches)
        assert torch.equal(before.assignment, after.assignment)
        assert not torch.allclose(before.primitives, after.primitives)  # but it still updates the primitives

    def test_without_the_prior_only_attention_assigns(self, cls: Tensor, patches: Tensor) -> None:
        cpf = build({"use_prior": False})
        prior = cpf.log_prior(patches, cpf.codebook(patches, patches.mean(1))).exp()
        _, weights = cpf.update(prior.transpose(1, 2) @ patches, patches)
        expected = (cpf.alpha_data * weights.mean(dim=1).transpose(1, 2)).softmax(dim=2)
        torch.testing.assert_close(field_of(cpf, cls, patches).assignment, expected)

    def test_without_phi_all_images_share_the_codebook(self, patches: Tensor) -> None:
        cpf = build()
        assert not torch.allclose(cpf.codebook(patches, patches.mean(1))[0], cpf.codebook(patches, patches.mean(1))[1])
        nn.init.zeros_(cpf.phi[-1].weight)
        for codebook in cpf.codebook(patches, patches.mean(1)):
            assert torch.equal(codebook, cpf.base)

    def test_twin_primitives_share_every_token(self, cls: Tensor, patches: Tensor) -> None:
        cpf = build()
        nn.init.zeros_(cpf.phi[-1].weight)
        with torch.no_grad():
            cpf.base[3] = cpf.base[1]
        field = field_of(cpf, cls, patches)
        torch.testing.assert_close(field.assignment[..., 3], field.assignment[..., 1])
        torch.testing.assert_close(field.primitives[:, 3], field.primitives[:, 1])
        assert not torch.allclose(field.assignment[..., 3], field.assignment[..., 2])

    def test_images_do_not_see_each_other(self, cls: Tensor, patches: Tensor) -> None:
        cpf = build()
        field = field_of(cpf, cls, patches)
        for image in range(BATCH):
            alone = field_of(cpf, cls[image : image + 1], patches[image : image + 1])
            for part, of_batch in zip(alone, field, strict=True):
                torch.testing.assert_close(part[0], of_batch[image])

    def test_decoded_mixture_has_at_most_m_dimensions(self, cls: Tensor, patches: Tensor) -> None:
        cpf = build()
        field = field_of(cpf, cls, patches)
        decoded = nn.functional.gelu(cpf.mlp1(field.primitives))  # (B, M, D)
        mixture = field.assignment @ decoded  # (B, N, D), before MLP₂ and the skip
        assert torch.linalg.matrix_rank(mixture).tolist() == [PRIMITIVES] * BATCH
        assert torch.linalg.matrix_rank(field.tokens).min() > PRIMITIVES


class TestTraining:
    @each_variant
    def test_every_parameter_receives_gradient_from_the_start(
        self, settings: dict, cls: Tensor, patches: Tensor
    ) -> None:
        if settings.get("primitives") == 1:
            settings = {**settings, "primitives": 2}  # a single primitive owns every token, whatever α says
        torch.manual_seed(0)
        cpf = CPF(DIM, **{"primitives": PRIMITIVES, "heads": HEADS, **settings}).double()
        for name, gradient in gradients(cpf, cls, patches, return_field=False).items():
            assert gradient.abs().max() > 0, name

    def test_alphas_are_learned_or_fixed(self) -> None:
        fixed = {"learn_alpha=False": (1.0, 1.0), "use_prior=False": (0.0, None), "use_data=False": (None, 0.0)}
        for setting, expected in fixed.items():
            cpf = CPF(DIM, heads=HEADS, **{setting.split("=")[0]: False})
            learned = dict(cpf.named_parameters())
            for name, value in zip(("alpha_prior", "alpha_data"), expected, strict=True):
                assert (name in learned) == (value is None), (setting, name)
                assert cpf.get_parameter(name).item() == 1 if value is None else getattr(cpf, name).item() == value

    def test_primitives_differ_from_the_start(self) -> None:
        """Slots that begin alike would stay alike: the prior must already tell primitives and tokens apart."""
        torch.manual_seed(0)
        cpf, patches = CPF(96), torch.randn(2, 64, 96)
        log_prior = cpf.log_prior(patches, cpf.codebook(patches, patches.mean(1)))
        assert 0.5 < log_prior.std(dim=1).mean() < 2


class TestNumerics:
    @pytest.mark.parametrize("scale", [1.0, 1e3])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("readout", ["literal", "gated"])
    def test_finite(self, scale: float, dtype: torch.dtype, readout: str, cls: Tensor, patches: Tensor) -> None:
        cpf = build({"readout": readout}).to(dtype)
        cls, patches = (scale * cls).to(dtype), (scale * patches).to(dtype)
        if scale > 1:  # hard enough that log(softmax) would be -inf
            assert (cpf.log_prior(patches, cpf.codebook(patches, patches.mean(1))).exp() == 0).any()
        for part in field_of(cpf, cls, patches):
            assert part.isfinite().all()
        for name, gradient in gradients(cpf, cls, patches, return_field=True).items():
            assert gradient.isfinite().all(), name

    def test_autocast_agrees_with_full_precision(self, cls: Tensor, patches: Tensor) -> None:
        cpf = build().float()
        cls, patches = cls.float(), patches.float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            feature = cpf(cls, patches)
        exact = cpf(cls, patches)
        assert (feature - exact).norm() < 0.02 * exact.norm()


class TestSettings:
    def test_parameter_count_of_the_paper(self) -> None:
        with torch.device("meta"):
            cpf, full = CPF(768), CPF(768, phi_rank=None)
        assert sum(p.numel() for p in cpf.parameters()) == 7_521_792 + 12 * 768 + 3
        assert sum(p.numel() for p in full.parameters()) == 20_654_595  # far from the paper's 7.52 M

    def test_full_rank_phi(self) -> None:
        count = {rank: sum(p.numel() for p in CPF(DIM, 5, 4, phi_rank=rank).phi.parameters()) for rank in (None, 7)}
        assert count == {None: 2 * DIM * 5 * DIM, 7: 2 * DIM * 7 + 7 * 5 * DIM}

    def test_only_one_dimensional_parameters_escape_weight_decay(self) -> None:
        """Optimisers here decay what has two dimensions or more: the scalars, the gate and the biases have one."""
        flat = {name for name, p in CPF(DIM, readout="gated").named_parameters() if p.ndim < 2}
        assert flat == {"gamma", "alpha_prior", "alpha_data", "gate", "mlp1.bias", "mlp2.bias"}

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"heads": 7}, "can be 1, 2, 3, 4, 6, 8, 12, 24"),
            ({"heads": 0}, "can be 1, 2, 3"),
            ({"primitives": 0}, "organizer.primitives' must be a whole number of at least 1"),
            ({"phi_rank": 0}, "'organizer.phi_rank' must be"),
            ({"readout": "gate"}, "one of literal, delta, gated"),
            ({"use_prior": False, "use_data": False}, "nothing to assign"),
            ({"data_temperature": 0.0}, "above 0"),
        ],
    )
    def test_impossible_settings(self, settings: dict, message: str) -> None:
        with pytest.raises(NewkindsError, match=message):
            CPF(DIM, **settings)

    def test_organize_gives_the_field_on_request(self, cls: Tensor, patches: Tensor) -> None:
        cpf, tokens = build(), Tokens(cls, patches, grid=(2, 5))
        assert cpf.organize(tokens).field is None
        field, encoded = field_of(cpf, cls, patches), cpf.organize(tokens, details=True)
        assert torch.equal(encoded.field, field.assignment)
        assert torch.equal(encoded.tokens, field.tokens)
