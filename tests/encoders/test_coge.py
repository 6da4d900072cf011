"""CoGe: the released form against numbers of the published code (float64), the paper's form against plain loops."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from newkinds.encoders.organizers.coge import CoGe, smooth_by_distance, smooth_by_neighbours
from newkinds.encoders.tokens import Tokens
from newkinds.errors import NewkindsError

TIGHT = {"rtol": 0, "atol": 1e-9}
GRID, DIM, CONCEPTS, HEADS = (2, 3), 8, 3, 2
THEIRS = {  # name in the published code → ours
    "hgnn.edge_generator.prototype_base": "base",
    "hgnn.edge_generator.context_net.weight": "phi.0.weight",
    "hgnn.edge_generator.context_net.bias": "phi.0.bias",
    "hgnn.edge_generator.pre_head_proj.weight": "projection.weight",
    "hgnn.edge_generator.pre_head_proj.bias": "projection.bias",
    "hgnn.edge_proj.0.weight": "gather.weight",
    "hgnn.edge_proj.0.bias": "gather.bias",
    "hgnn.node_proj.0.weight": "spread.weight",
    "hgnn.node_proj.0.bias": "spread.bias",
}


@pytest.fixture(scope="module")
def numbers() -> dict[str, Tensor]:
    with np.load(Path(__file__).parents[1] / "numbers" / "coge.npz") as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}


def build(**settings: object) -> CoGe:
    torch.manual_seed(0)
    return CoGe(DIM, primitives=CONCEPTS, heads=HEADS, **settings).double()


def some_tokens(grid: tuple[int, int] = GRID, images: int = 2) -> Tokens:
    generator = torch.Generator().manual_seed(1)
    patches = torch.randn(images, grid[0] * grid[1], DIM, generator=generator, dtype=torch.float64)
    return Tokens(torch.randn(images, DIM, generator=generator, dtype=torch.float64), patches, grid)


# --- published numbers -----------------------------------------------------------------------------------


def test_the_released_form_gives_the_published_numbers(numbers: dict[str, Tensor]) -> None:
    coge = build(variant="release", dropout=0.0)
    coge.load_state_dict({ours: numbers[f"module.param.{theirs}"] for theirs, ours in THEIRS.items()})
    cls, patches = (numbers[f"module.{name}"].clone().requires_grad_() for name in ("cls", "tokens"))
    tokens = Tokens(cls, patches, (4, 4))
    encoded = coge.organize(tokens, details=True)
    torch.testing.assert_close(coge.assignment(tokens), numbers["module.memberships"], **TIGHT)
    torch.testing.assert_close(encoded.tokens, numbers["module.refined"], **TIGHT)
    torch.testing.assert_close(encoded.feature, numbers["module.embedding"], **TIGHT)

    (encoded.feature * numbers["module.weight_for_grad"]).sum().backward()
    torch.testing.assert_close(patches.grad, numbers["module.grad_tokens"], **TIGHT)
    torch.testing.assert_close(cls.grad, numbers["module.grad_cls"], **TIGHT)
    parameters = dict(coge.named_parameters())
    assert set(parameters) == set(THEIRS.values())
    for theirs, ours in THEIRS.items():
        torch.testing.assert_close(parameters[ours].grad, numbers[f"module.gradparam.{theirs}"], **TIGHT, msg=ours)


def test_the_released_calibration_gives_the_published_numbers(numbers: dict[str, Tensor]) -> None:
    scores, tokens = numbers["calibration.scores"], numbers["calibration.tokens"]
    calibrated = scores + 0.1 * smooth_by_neighbours(scores, tokens, (4, 4))
    torch.testing.assert_close(calibrated, numbers["calibration.calibrated"], **TIGHT)


# --- plain loops -----------------------------------------------------------------------------------------


def neighbours(place: int, grid: tuple[int, int]) -> list[int]:
    row, column = divmod(place, grid[1])
    around = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
    return [r * grid[1] + c for r, c in around if 0 <= r < grid[0] and 0 <= c < grid[1]]


def test_the_released_calibration_by_loops_on_a_grid_that_is_no_square() -> None:
    tokens = some_tokens()
    scores = torch.randn(2, 6, CONCEPTS, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for image in range(2):
        s, x = scores[image], tokens.patches[image]

        def mean(values: Tensor, weigh: bool, x: Tensor = x) -> Tensor:
            rows = []
            for i in range(6):
                near = neighbours(i, GRID)
                cosines = [max(0.0, float(torch.cosine_similarity(x[i], x[j], dim=0))) for j in near]
                weights = cosines if weigh else [1.0] * len(near)
                rows.append(sum(w * values[j] for w, j in zip(weights, near, strict=True)) / (sum(weights) or 1e-12))
            return torch.stack([row if isinstance(row, Tensor) else torch.zeros(CONCEPTS) for row in rows])

        plain = mean(s, weigh=False)
        means = [plain, mean(s, weigh=True), mean(plain, weigh=True)]
        differs = [max(0.0, 1 - float((s * m).sum() / (s * s).sum())) for m in means]
        expected = sum(d / sum(differs) * m for d, m in zip(differs, means, strict=True))
        got = smooth_by_neighbours(scores, tokens.patches, GRID)[image]
        torch.testing.assert_close(got, expected, **TIGHT)


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def paper_form(coge: CoGe, cls: list[float], x: list[list[float]]) -> tuple[list[float], list[list[float]]]:
    """Feature and X' of one image, number by number."""
    n, base, m_all, d_all = len(x), coge.base.tolist(), range(CONCEPTS), range(DIM)
    context = [sum(t[d] for t in x) / n for d in d_all] + [max(t[d] for t in x) for d in d_all]
    first, second = coge.phi[0].weight.tolist(), coge.phi[2].weight.tolist()
    inner = [gelu(sum(w * c for w, c in zip(row, context, strict=True))) for row in first]
    shift = [sum(w * c for w, c in zip(row, inner, strict=True)) for row in second]
    p = [[base[m][d] + shift[m * DIM + d] for d in d_all] for m in m_all]
    width = DIM // HEADS
    score = [
        [
            sum(sum(x[i][d] * p[m][d] for d in range(h * width, (h + 1) * width)) for h in range(HEADS))
            / (HEADS * math.sqrt(width))
            for m in m_all
        ]
        for i in range(n)
    ]
    total = [sum(math.exp(score[i][m] / coge.temperature) for i in range(n)) for m in m_all]
    a = [[math.exp(score[i][m] / coge.temperature) / total[m] for m in m_all] for i in range(n)]
    smooth = []
    for i in range(n):
        near = [math.exp(-((i // GRID[1] - j // GRID[1]) ** 2) - (i % GRID[1] - j % GRID[1]) ** 2) for j in range(n)]
        smooth.append([sum(near[j] * a[j][m] for j in range(n)) / sum(near) for m in m_all])
    column = [sum(smooth[i][m] for i in range(n)) for m in m_all]
    both = [[(a[i][m] + smooth[i][m] / column[m]) / 2 for m in m_all] for i in range(n)]
    gather, spread = coge.gather.weight.tolist(), coge.spread.weight.tolist()
    pooled = [[sum(both[i][m] * x[i][d] for i in range(n)) for d in d_all] for m in m_all]
    concepts = [[gelu(sum(gather[e][d] * pooled[m][d] for d in d_all)) for e in d_all] for m in m_all]
    refined = []
    for i in range(n):
        mixed = [sum(both[i][m] * concepts[m][d] for m in m_all) / sum(both[i]) for d in d_all]
        refined.append([gelu(sum(spread[e][d] * mixed[d] for d in d_all)) for e in d_all])
    return [cls[d] + sum(row[d] for row in refined) / n for d in d_all], refined


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_paper_form_by_loops(temperature: float) -> None:
    coge, tokens = build(temperature=temperature), some_tokens()
    encoded = coge.organize(tokens, details=True)
    for image in range(2):
        feature, refined = paper_form(coge, tokens.cls[image].tolist(), tokens.patches[image].tolist())
        torch.testing.assert_close(encoded.feature[image], torch.tensor(feature, dtype=torch.float64), **TIGHT)
        torch.testing.assert_close(encoded.tokens[image], torch.tensor(refined, dtype=torch.float64), **TIGHT)


# --- behaviour and bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["paper", "release"])
@pytest.mark.parametrize("grid", [(1, 1), (1, 5), (5, 2), (3, 3)])
def test_any_grid_will_do(variant: str, grid: tuple[int, int]) -> None:
    coge, tokens = build(variant=variant).eval(), some_tokens(grid)
    encoded = coge.organize(tokens, details=True)
    assignment = coge.assignment(tokens)
    torch.testing.assert_close(assignment.sum(dim=1), torch.ones_like(assignment[:, 0]))
    torch.testing.assert_close(encoded.field.sum(dim=2), torch.ones_like(encoded.field[..., 0]))
    encoded.feature.sum().backward()
    assert encoded.feature.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in coge.parameters())


def test_tokens_that_are_all_alike_give_no_nan() -> None:
    """The released calibration divides by what the means differ from the scores."""
    patches = torch.zeros(1, 4, DIM, dtype=torch.float64, requires_grad=True)
    coge = build(variant="release", dropout=0.0)
    feature = coge.organize(Tokens(torch.zeros(1, DIM, dtype=torch.float64), patches, (2, 2))).feature
    feature.sum().backward()
    assert feature.isfinite().all()
    assert patches.grad is not None
    assert patches.grad.isfinite().all()


def test_smoothing_moves_a_concept_to_places_near_by() -> None:
    alone = torch.zeros(1, 12, 1, dtype=torch.float64)
    alone[0, 5] = 1.0  # row 1, column 1 of 3 × 4
    smooth = smooth_by_distance(alone, (3, 4))[0, :, 0].view(3, 4)
    assert smooth.sum().item() == pytest.approx(1)
    assert smooth[1, 1] > smooth[0, 1] > smooth[0, 0] > smooth[1, 3] > 0


def test_dropout_is_of_the_released_form_in_training_alone() -> None:
    tokens = some_tokens()
    for variant, differs in (("paper", False), ("release", True)):
        coge = build(variant=variant, dropout=0.5)
        torch.manual_seed(1)
        assert (not torch.equal(coge.organize(tokens).feature, coge.organize(tokens).feature)) is differs
        coge.eval()
        assert torch.equal(coge.organize(tokens).feature, coge.organize(tokens).feature)


def test_the_released_form_drops_scores_out_before_it_smooths_them() -> None:
    tokens = some_tokens()
    coge = build(variant="release", dropout=0.4)
    scores = coge.scores(tokens.patches)
    torch.manual_seed(3)
    kept = torch.nn.functional.dropout(scores, 0.4)
    assert 0 < (kept == 0).sum() < kept.numel()
    expected = (kept + 0.1 * smooth_by_neighbours(kept, tokens.patches, GRID)).softmax(dim=1)
    torch.manual_seed(3)
    torch.testing.assert_close(coge.assignment(tokens), expected, **TIGHT)


def test_sizes_of_phi() -> None:
    """The released φ is one full matrix; the paper's is small."""

    def weights(**settings: object) -> int:
        return sum(p.numel() for p in CoGe(96, **settings).phi.parameters())

    assert weights() == 2 * 96 * 12 + 12 * 16 * 96
    assert weights(phi_rank=3) == 2 * 96 * 3 + 3 * 16 * 96
    assert weights(phi_rank=None) == 2 * 96 * 16 * 96
    assert weights(variant="release") == (2 * 96 + 1) * 16 * 96


@pytest.mark.parametrize("size", [1.0, 2.5], ids=["after a LayerNorm", "DINOv2"])
def test_concepts_begin_apart_and_the_feature_near_the_class_token(size: float) -> None:
    torch.manual_seed(0)
    coge, tokens = CoGe(384), Tokens(size * torch.randn(4, 384), size * torch.randn(4, 196, 384), (14, 14))
    encoded = coge.organize(tokens, details=True)
    unit = torch.nn.functional.normalize(encoded.slots, dim=2)
    alike = (unit @ unit.transpose(1, 2)).flatten(1).mean()
    assert alike < 0.9
    assert 0.5 < (encoded.feature.norm(dim=1) / tokens.cls.norm(dim=1)).mean() < 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variant": "published"}, "organizer.variant' must be one of paper, release"),
        ({"primitives": 0}, "organizer.primitives' must be a whole number of at least 1"),
        ({"temperature": 0.0}, "organizer.temperature' must be a number above 0"),
        ({"dropout": 1.5}, "organizer.dropout' must be a number from 0 to 1"),
        ({"heads": 7}, "CoGe cannot share 96 features among 7 heads; heads can be 1, 2, 3, 4, 6, 8"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(NewkindsError, match=message):
        CoGe(96, **settings)
