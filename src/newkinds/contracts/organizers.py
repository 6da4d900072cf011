"""What every organizer promises."""

import torch
from torch import Tensor

from ..encoders.organizers import ORGANIZERS, Organizer
from ..encoders.tokens import Tokens
from .base import AskedPart, NotAsked, contract, require

BATCH, GRID, DIM = 3, (2, 4), 48
FAR = 0.5  # cosine of features with class tokens below which a start is remarked on


def build(part: AskedPart, seed: int = 0) -> Organizer:
    torch.manual_seed(seed)
    return ORGANIZERS[part.name](DIM, **part.settings)


def random_tokens(batch: int = BATCH, dtype: torch.dtype = torch.float32) -> Tokens:
    """Of a few images; those of the first are the same, however many there are."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(1 + GRID[0] * GRID[1], DIM, generator=generator, dtype=torch.float64) for _ in range(batch)]
    every = torch.stack(rows).to(dtype)  # (B, 1 + N, D)
    return Tokens(every[:, 0], every[:, 1:], GRID)


def leaves(tokens: Tokens) -> tuple[Tensor, Tensor]:
    """Class tokens and patches that want gradients."""
    return tokens.cls.clone().requires_grad_(), tokens.patches.clone().requires_grad_()


@contract("organizer", keeper="organize")
def one_feature_an_image(part: AskedPart) -> None:
    """One finite feature of the backbone's size for each image."""
    encoded = build(part).organize(random_tokens())
    shape = tuple(encoded.feature.shape)
    require(shape == (BATCH, DIM), f"of {BATCH} images of {DIM} numbers it makes features {shape}.")
    require(bool(encoded.feature.isfinite().all()), "features are not finite.")
    none = encoded.tokens is None and encoded.field is None
    require(none, "tokens and field are computed although nobody asked for details.")


@contract("organizer", keeper="organize")
def details_change_no_feature(part: AskedPart) -> None:
    """With details the feature is the same, and tokens and fields have their shapes."""
    organizer, tokens = build(part), random_tokens()
    encoded = organizer.eval().organize(tokens, details=True)
    feature = organizer.organize(tokens).feature
    require(torch.allclose(encoded.feature, feature, atol=1e-5), "with details=True the feature is another.")
    require(encoded.tokens is not None, "with details=True there are no tokens.")
    assert encoded.tokens is not None
    same = encoded.tokens.shape == tokens.patches.shape
    require(same, f"tokens are of shape {tuple(encoded.tokens.shape)}, not {tuple(tokens.patches.shape)}.")
    require(encoded.grid == GRID, f"the grid is {encoded.grid}, not {GRID}, as that of the tokens.")
    if encoded.field is not None:
        of_patches = encoded.field.shape[:2] == tokens.patches.shape[:2]
        require(of_patches, f"the field is of shape {tuple(encoded.field.shape)}, not (images, patches, …).")
        require(bool((encoded.field >= 0).all()), "the field has negative shares.")


@contract("organizer", keeper="organize")
def images_do_not_see_each_other(part: AskedPart) -> None:
    """An image's feature does not depend on the other images of the batch."""
    organizer = build(part).eval()
    alone = organizer.organize(random_tokens(1)).feature
    among = organizer.organize(random_tokens()).feature[:1]
    require(torch.allclose(alone, among, atol=1e-5), "the feature of an image is another if others are in the batch.")


@contract("organizer")
def the_same_seed_gives_the_same(part: AskedPart) -> None:
    """The same seed of torch gives the same feature, and its state is all that makes it."""
    tokens = random_tokens()
    first, again, other = build(part).eval(), build(part).eval(), build(part, seed=1).eval()
    expected = first.organize(tokens).feature
    require(torch.equal(again.organize(tokens).feature, expected), "built twice with one seed, it differs.")
    other.load_state_dict(first.state_dict())
    same = torch.equal(other.organize(tokens).feature, expected)
    require(same, "with the state of another it gives another feature: what it needs is no parameter and no buffer.")


@contract("organizer", keeper="organize")
def gradients_reach_every_parameter(part: AskedPart) -> None:
    """Gradients reach the tokens of every image, and every parameter that trains."""
    organizer = build(part)
    for parameter in organizer.parameters():
        if not parameter.any():  # nothing goes through a map that starts at zero
            torch.nn.init.normal_(parameter, std=1e-2)
    cls, patches = leaves(random_tokens())
    encoded = organizer.organize(Tokens(cls, patches, GRID))
    own = organizer.loss(encoded, torch.tensor([0, -1, 0]), epoch=0)
    weights = torch.randn(BATCH, DIM, generator=torch.Generator().manual_seed(1))
    total = (encoded.feature * weights).sum() + sum(own.values(), torch.zeros(()))
    total.backward()
    reaching = [leaf.grad.flatten(1).abs().sum(dim=1) > 0 for leaf in (cls, patches) if leaf.grad is not None]
    require(
        bool(reaching) and bool(torch.stack(reaching).any(dim=0).all()),
        "no gradient reaches the tokens of some images, so that the backbone would not train.",
    )
    missed = [
        name for name, p in organizer.named_parameters() if p.requires_grad and (p.grad is None or not p.grad.any())
    ]
    require(not missed, f"no gradient reaches {', '.join(missed[:3])}: what does not train is frozen or a buffer.")


@contract("organizer", keeper="organize")
def bfloat16_is_finite(part: AskedPart) -> None:
    """In bfloat16 features, losses of its own and gradients are finite."""
    organizer = build(part)
    tokens = random_tokens()
    cls, patches = leaves(tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        encoded = organizer.organize(Tokens(cls.bfloat16(), patches.bfloat16(), GRID))
        own = organizer.loss(encoded, torch.tensor([0, -1, 0]), epoch=0)
    require(bool(encoded.feature.isfinite().all()), "features are not finite.")
    (encoded.feature.float().square().sum() + sum(loss.float() for loss in own.values())).backward()
    for name, parameter in organizer.named_parameters():
        if parameter.grad is not None:
            require(bool(parameter.grad.isfinite().all()), f"the gradient of {name} is not finite.")


@contract("organizer", keeper="organize")
def float64_is_the_same(part: AskedPart) -> None:
    """In float64 the feature is the same up to rounding, and float64."""
    single, double = build(part).eval(), build(part).eval().double()
    feature = double.organize(random_tokens(dtype=torch.float64)).feature
    require(feature.dtype == torch.float64, f"of float64 tokens it makes features in {feature.dtype}.")
    close = torch.allclose(feature, single.organize(random_tokens()).feature.double(), atol=1e-3)
    require(close, "the feature in float64 is another than in float32.")


@contract("organizer", keeper="read_slots")
def slots_are_read_to_the_feature(part: AskedPart) -> None:
    """If nothing trains before its slots, reading them gives the feature."""
    organizer = build(part).eval()
    if not organizer.fixed_slots:
        raise NotAsked("its slots are not fixed")
    tokens = random_tokens()
    if organizer.starts_from_tokens:
        organizer.start(tokens)
    feature = organizer.read_slots(tokens.cls, organizer.slots(tokens))
    require(torch.allclose(feature, organizer.organize(tokens).feature, atol=1e-4), "slots give another feature.")


@contract("organizer")
def starts_near_the_class_token(part: AskedPart) -> str | None:
    """At the start the feature is near the class token."""
    tokens = random_tokens()
    organizer = build(part).eval()
    if organizer.starts_from_tokens:
        organizer.start(tokens)
    near = torch.cosine_similarity(organizer.organize(tokens).feature, tokens.cls, dim=1).mean().item()
    if near > FAR:
        return None
    return f"their cosine is {near:.2f}: training has to find again what the backbone knows (see docs/plugins.md)"
